{{- define "spdk-csi.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The Secret that classes name. */}}
{{- define "spdk-csi.secret" -}}
{{ .Values.credentials.existingSecret | default "spdkcsi-secret" }}
{{- end }}

{{/* Whether the driver registers itself with kubelet; empty: no. */}}
{{- define "spdk-csi.selfRegistration" -}}
{{- if or .Values.node.selfRegistration .Values.node.lifecycle (ne .Values.node.kubeletRoot "/var/lib/kubelet") }}true{{ end }}
{{- end }}

{{/* The parameters that name the Secret of calls: a dict with root and purposes. */}}
{{- define "spdk-csi.secretParameters" -}}
{{- range .purposes }}
csi.storage.k8s.io/{{ . }}-secret-name: {{ include "spdk-csi.secret" $.root }}
csi.storage.k8s.io/{{ . }}-secret-namespace: {{ $.root.Release.Namespace }}
{{- end }}
{{- end }}

{{/* A sidecar of the controller: a dict with root, name, image, port, portName, and args after the common ones. */}}
{{- define "spdk-csi.sidecar" -}}
- name: spdkcsi-{{ .name }}
  image: {{ .image }}
  args:
    - --v=2
    - --csi-address=/csi/csi.sock
    - --timeout=60s
    - --retry-interval-start=500ms
    - --retry-interval-max=1m
    {{- range .args }}
    - {{ . }}
    {{- end }}
    - --leader-election
    - --feature-gates=ReleaseLeaderElectionOnExit=true
    {{- range .gates }}
    - --feature-gates={{ . }}
    {{- end }}
    - --http-endpoint=:{{ .port }}
  ports:
    - name: {{ .name }}
      containerPort: {{ .port }}
  # Restarts a leader that neither renews its lease nor steps down.
  livenessProbe:
    httpGet:
      path: /healthz/leader-election
      port: {{ .name }}
    initialDelaySeconds: 10
    timeoutSeconds: 10
    periodSeconds: 20
  resources:
    requests:
      cpu: 10m
      memory: {{ .memory }}
    limits:
      memory: 512Mi
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
  volumeMounts:
    - name: socket-dir
      mountPath: /csi
{{- end }}
