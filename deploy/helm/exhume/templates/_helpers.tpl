{{- define "exhume.labels" -}}
app.kubernetes.io/name: exhume
{{- end -}}
{{- define "exhume.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.tag }}:{{ . }}{{ end }}
{{- end -}}
