{{- define "dovetail.name" -}}{{ .Chart.Name | trunc 63 | trimSuffix "-" }}{{- end }}
{{- define "dovetail.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}
{{- define "dovetail.account" -}}{{ default (include "dovetail.fullname" .) .Values.serviceAccount.name }}{{- end }}
{{- define "dovetail.selector" -}}
app.kubernetes.io/name: {{ include "dovetail.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "dovetail.labels" -}}
{{ include "dovetail.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
{{- define "dovetail.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}{{ else }}{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}{{ end }}
{{- end }}
{{- define "dovetail.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "dovetail.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "dovetail.releaseHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: "-5"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- define "dovetail.settings" -}}
{{- $base := ternary (dict "base" "recommended") dict .Values.recommended -}}
{{- $recordings := ternary (dict "recordings" (dict "path" "/var/lib/dovetail/recording" "keep" .Values.recordings.keep)) dict .Values.recordings.enabled -}}
{{- toYaml (merge (deepCopy .Values.settings) $base $recordings) -}}
{{- end }}
{{- define "dovetail.mayEvict" -}}{{- if or .Values.rights.evictions .Values.recommended -}}true{{- end -}}{{- end }}
{{- define "dovetail.maySteer" -}}{{- if or .Values.rights.steering .Values.recommended -}}true{{- end -}}{{- end }}
