{{/* The chart's part of the configuration over the user's. JSON is YAML, in which large numbers keep their form. */}}
{{- define "spdk-proxy.config" -}}
{{- $tls := dict }}
{{- if .Values.tls.secretName }}
{{- $tls = dict "cert_file" "/etc/spdk-proxy-tls/tls.crt" "key_file" "/etc/spdk-proxy-tls/tls.key" }}
{{- else }}
{{- $tls = dict "self_signed_dir" .Values.stateDir }}
{{- end }}
{{- if .Values.tls.clientCAConfigMap }}
{{- $tls = merge $tls (dict "client_ca_file" "/etc/spdk-proxy-client-ca/ca.crt" "client_auth" .Values.tls.clientAuth) }}
{{- end }}
{{- $target := dict
      "socket" (printf "%s/%s" .Values.target.socketDir .Values.target.socketName)
      "save" (dict "dir" (printf "%s/target" .Values.stateDir))
      "keys" (dict "dir" (printf "%s/keys" .Values.stateDir))
      "freeze" (dict "dir" (printf "%s/frozen" .Values.stateDir)) }}
{{- $config := deepCopy .Values.config }}
{{- range $key, $value := $config.target | default dict }}
{{- $_ := set $target $key $value }}
{{- end }}
{{- if and (ne (int .Values.runAsUser) 0) (not $target.peer_users) }}
{{- $_ := set $target "peer_users" (list (printf "%d" (int .Values.runAsUser))) }}
{{- end }}
{{- $address := ternary (printf "[%s]" .Values.listenAddress) .Values.listenAddress (contains ":" .Values.listenAddress) }}
{{- $_ := set $config "listen" (printf "%s:%d" $address (int .Values.port)) }}
{{- if .Values.localSocket.dir }}
{{- $_ := set $config "listen_unix" (dict "path" (printf "%s/rpc.sock" .Values.localSocket.dir) "mode" .Values.localSocket.mode) }}
{{- end }}
{{- $_ := set $config "tls" $tls }}
{{- $_ := set $config "target" $target }}
{{- if .Values.clusterTokens.enabled }}
{{- $_ := set $config "oidc" (append ($config.oidc | default list) (dict
      "name" "cluster" "issuer" .Values.clusterTokens.issuer "audience" .Values.clusterTokens.audience
      "jwks_url" "https://kubernetes.default.svc/openid/v1/jwks"
      "ca_file" "/var/run/secrets/spdk-proxy-cluster/ca.crt" "bearer_file" "/var/run/secrets/spdk-proxy-cluster/token")) }}
{{- end }}
{{- $config | toPrettyJson }}
{{- end }}

{{/* What the proxy reads only when it starts: a change of it restarts the pods. All other changes apply without a restart. */}}
{{- define "spdk-proxy.restart" -}}
{{- $config := include "spdk-proxy.config" . | fromJson }}
{{- $limits := pick ($config.limits | default dict) "connections" "connections_per_source" "idle" "drain" }}
{{- dict "listen" $config.listen "unix" $config.listen_unix "balancers" $config.load_balancers "log" $config.log "metrics" $config.metrics "limits" $limits "target" (omit $config.target "timeouts" "snapshots_in_use" "accept_loading_what_hosts_write" "accept_changes_without_counts") | toJson | sha256sum }}
{{- end }}

{{/* Whether the proxy fetches keys of issuers; empty: no. */}}
{{- define "spdk-proxy.issuers" -}}
{{- if .Values.clusterTokens.enabled }}true{{ end }}
{{- range .Values.config.oidc }}{{ if not .jwks_file }}true{{ end }}{{ end }}
{{- end }}

{{/* A probe: a dict with root and path. kubelet has no client certificate. */}}
{{- define "spdk-proxy.probe" -}}
{{- if and .root.Values.tls.clientCAConfigMap (eq .root.Values.tls.clientAuth "required") -}}
tcpSocket:
  port: https
{{- else -}}
httpGet:
  path: {{ .path }}
  port: https
  scheme: HTTPS
{{- end }}
{{- if not (has .root.Values.listenAddress (list "0.0.0.0" "::")) }}
  host: {{ .root.Values.listenAddress | quote }}
{{- end }}
{{- end }}
