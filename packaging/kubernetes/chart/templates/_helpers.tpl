{{- /* A pod of the cluster's account, with `command` of tidegate-kube. */}}
{{- define "tidegate.control" -}}
serviceAccountName: tidegate-control
imagePullSecrets: {{ toJson .values.image.pullSecrets }}
nodeSelector:
{{ toYaml .values.nodeSelector | indent 2 }}
# The controller moves soon when its own node is away: until then, other nodes' promises stay.
tolerations:
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
{{- with .values.startupTaint }}
  # The nodes of a new cluster may all have it.
  - {key: {{ . | quote }}, operator: Exists}
{{- end }}
containers:
  - name: {{ .command }}
    image: {{ .values.image.repository }}:{{ .values.image.tag }}
    imagePullPolicy: {{ .values.image.pullPolicy }}
    command: [/tidegate-kube, {{ .command }}]
{{- with .arguments }}
    args: {{ toJson . }}
{{- end }}
    env:
      - name: POD_NAMESPACE
        valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
      runAsUser: 65532
      runAsGroup: 65532
      runAsNonRoot: true
      seccompProfile: {type: RuntimeDefault}
    resources:
{{ toYaml .values.resources.control | indent 6 }}
{{- end }}
