{{- /* A pod of the cluster's account, with `command` of tidegate-kube. */}}
{{- define "tidegate.control" -}}
serviceAccountName: tidegate-control
imagePullSecrets: {{ toJson .values.image.pullSecrets }}
nodeSelector:
{{ toYaml .values.nodeSelector | indent 2 }}
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
