{{- define "iofair.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "iofair.labels" -}}
app.kubernetes.io/name: iofair
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- /* The labels by which Pods of a component are found: a dict of root and component. */}}
{{- define "iofair.selector" -}}
app.kubernetes.io/name: iofair
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}
{{- define "iofair.tls" -}}
{{ .Values.tls.existingSecret | default (printf "%s-tls" .Release.Name) }}
{{- end }}
{{- /* How the servers are found and called. */}}
{{- define "iofair.discovery" -}}
- --discover=app.kubernetes.io/name=iofair,app.kubernetes.io/instance={{ .Release.Name }},app.kubernetes.io/component=server
- --control-port={{ .Values.server.controlPort }}
- --tls=/etc/iofair/tls
{{- end }}
{{- /* The volume with the certificate of whoever calls the servers. */}}
{{- define "iofair.client" -}}
- name: tls
  secret:
    secretName: {{ include "iofair.tls" . }}
    defaultMode: 0440
    items:
      - {key: ca.crt, path: ca.crt}
      - {key: client.crt, path: tls.crt}
      - {key: client.key, path: tls.key}
{{- end }}
