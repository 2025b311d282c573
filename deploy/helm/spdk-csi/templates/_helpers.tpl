{{- define "spdk-csi.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The Secret that classes name. */}}
{{- define "spdk-csi.secret" -}}
{{ .Values.credentials.existingSecret | default "spdkcsi-secret" }}
{{- end }}

{{/* The ConfigMap with the authorities' certificates. */}}
{{- define "spdk-csi.ca" -}}
{{ .Values.ca.configMap | default "spdkcsi-ca" }}
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

{{/* A sidecar of the controller: a dict with root, name, image, port, args after the common ones, and podEnv for the pod's name in the environment. */}}
{{- define "spdk-csi.sidecar" -}}
- name: spdkcsi-{{ .name }}
  image: {{ .image }}
  args:
    - --v=2
    - --csi-address=/csi/csi.sock
    - --timeout=60s
    - --retry-interval-start=500ms
    - --retry-interval-max=1m
    - --kube-api-qps=100
    - --kube-api-burst=200
    {{- range .args }}
    - {{ . }}
    {{- end }}
    - --leader-election
    - --feature-gates=ReleaseLeaderElectionOnExit=true
    {{- range .gates }}
    - --feature-gates={{ . }}
    {{- end }}
    - --http-endpoint=:{{ .port }}
  {{- if .podEnv }}
  env:
    - name: NAMESPACE
      valueFrom:
        fieldRef:
          fieldPath: metadata.namespace
    - name: POD_NAME
      valueFrom:
        fieldRef:
          fieldPath: metadata.name
  {{- end }}
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

{{/* What the driver needs to reach the storage servers: mounts of a container, and volumes of its pod. */}}
{{- define "spdk-csi.targetMounts" -}}
- name: spdkcsi-config
  mountPath: /etc/spdkcsi-config
  readOnly: true
- name: spdkcsi-secret
  mountPath: /etc/spdkcsi-secret
  readOnly: true
- name: spdkcsi-ca
  mountPath: /etc/spdkcsi-ca
  readOnly: true
{{- end }}

{{- define "spdk-csi.targetVolumes" -}}
- name: spdkcsi-config
  configMap:
    name: spdkcsi-cm
# For calls to which Kubernetes adds no Secret: free space, lists, and volumes whose
# PersistentVolume names none, such as those of spdk-csi.
- name: spdkcsi-secret
  {{- if .Values.credentials.serviceAccountToken }}
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: spdkcsi-controller-secret
      - serviceAccountToken:
          path: token
          audience: spdk-proxy
          expirationSeconds: 3600
  {{- else }}
  secret:
    secretName: {{ include "spdk-csi.secret" . }}
    defaultMode: 0440
  {{- end }}
- name: spdkcsi-ca
  configMap:
    name: {{ include "spdk-csi.ca" . }}
    optional: true
{{- end }}

{{/* The token of those who read metrics, if the driver serves them outside its pod. */}}
{{- define "spdk-csi.metricsVolume" -}}
{{- with .Values.metrics.tokenSecret }}
- name: spdkcsi-metrics
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end }}

{{/* A StorageClass: a dict with root and class. */}}
{{- define "spdk-csi.storageClass" -}}
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: {{ .class.name }}
  {{- if .class.default }}
  annotations:
    storageclass.kubernetes.io/is-default-class: "true"
  {{- end }}
provisioner: csi.spdk.io
parameters:
  {{- with .class.parameters }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if not .root.Values.credentials.serviceAccountToken }}
  {{- include "spdk-csi.secretParameters" (dict "root" .root "purposes" (list "provisioner" "controller-publish" "controller-expand")) | indent 2 }}
  {{- end }}
reclaimPolicy: {{ .class.reclaimPolicy | default "Delete" }}
allowVolumeExpansion: true
volumeBindingMode: {{ .class.volumeBindingMode | default (ternary "WaitForFirstConsumer" "Immediate" .root.Values.zones) }}
{{- with .class.mountOptions }}
mountOptions:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .class.allowedTopologies }}
allowedTopologies:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A VolumeSnapshotClass: a dict with root and class. */}}
{{- define "spdk-csi.snapshotClass" -}}
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata:
  name: {{ .class.name }}
  {{- if .class.default }}
  annotations:
    snapshot.storage.kubernetes.io/is-default-class: "true"
  {{- end }}
driver: csi.spdk.io
{{- if not .root.Values.credentials.serviceAccountToken }}
parameters:
  {{- include "spdk-csi.secretParameters" (dict "root" .root "purposes" (list "snapshotter" "snapshotter-list")) | indent 2 }}
{{- end }}
deletionPolicy: {{ .class.deletionPolicy | default "Delete" }}
{{- end }}

{{/* Where pods that call the API server and the storage servers can connect. */}}
{{- define "spdk-csi.egress" -}}
# DNS, including caches on the node.
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
# The API server.
- ports:
    {{- range .Values.networkPolicy.apiServer.ports }}
    - port: {{ int . }}
    {{- end }}
  {{- with .Values.networkPolicy.apiServer.cidrs }}
  to:
    {{- range . }}
    - ipBlock:
        cidr: {{ . | quote }}
    {{- end }}
  {{- end }}
{{- range .Values.storageServers }}
{{- $url := urlParse .rpcURL }}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "443" "80" (eq $url.scheme "https")) }}
# {{ .name }}
- ports:
    - port: {{ int $port }}
  {{- $bits := ternary "128" (ternary "32" "" (regexMatch "^[0-9.]+$" $url.hostname)) (contains ":" $url.hostname) }}
  {{- with $bits }}
  to:
    - ipBlock:
        cidr: {{ printf "%s/%s" $url.hostname . | quote }}
    # The chart spdk-proxy: on the proxy's own node, the node's address is replaced by the pod's before policies apply.
    - namespaceSelector: {}
      podSelector:
        matchLabels:
          app: spdk-proxy
  {{- end }}
{{- end }}
{{- with .Values.networkPolicy.egress }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}
