{{/* Names and labels, and what every pod of ours has. */}}
{{- define "surehook.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "surehook.selector" -}}
app.kubernetes.io/name: surehook
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "surehook.labels" -}}
{{ include "surehook.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "surehook.secret" -}}
{{- .Values.existingSecret | default (include "surehook.name" .) }}
{{- end }}

{{/* The deployments of the chosen mode. */}}
{{- define "surehook.deployments" -}}
{{- if eq .Values.mode "all" }}{{ toYaml .Values.all }}
{{- else if eq .Values.mode "split" }}{{ toYaml .Values.split }}
{{- else }}{{ fail "mode must be all or split." }}{{ end }}
{{- end }}

{{/* The one of them that sends. */}}
{{- define "surehook.sender" -}}{{ ternary "serve" "worker" (eq .Values.mode "all") }}{{- end }}
{{/* The one of them that serves the API. */}}
{{- define "surehook.api" -}}{{ ternary "serve" "api" (eq .Values.mode "all") }}{{- end }}

{{- define "surehook.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "surehook.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "surehook.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "surehook.environment" -}}
- {name: SUREHOOK_DATABASE_URL_FILE, value: /run/secrets/surehook/database-url}
- {name: SUREHOOK_ROLE_SECRET_FILE, value: /run/secrets/surehook/role-secret}
- {name: SUREHOOK_ENCRYPTION_KEY_FILE, value: /run/secrets/surehook/encryption-key}
{{- if or .Values.secrets.adminKey .Values.adminKeyInSecret }}
- {name: SUREHOOK_ADMIN_KEY_FILE, value: /run/secrets/surehook/admin-key}
{{- end }}
{{- if .Values.caConfigMap }}
- {name: SUREHOOK_CA_FILE, value: /run/surehook-ca/ca.pem}
{{- end }}
{{- range $name, $value := .Values.config }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "surehook.mounts" -}}
- {name: secrets, mountPath: /run/secrets/surehook, readOnly: true}
- {name: tmp, mountPath: /tmp}
- {name: home, mountPath: /var/lib/surehook}
{{- if .Values.caConfigMap }}
- {name: ca, mountPath: /run/surehook-ca, readOnly: true}
{{- end }}
{{- end }}

{{- define "surehook.volumes" -}}
- name: secrets
  secret: {secretName: {{ include "surehook.secret" . }}, defaultMode: 0440}
- {name: tmp, emptyDir: {}}
- {name: home, emptyDir: {}}
{{- if .Values.caConfigMap }}
- name: ca
  configMap: {name: {{ .Values.caConfigMap }}}
{{- end }}
{{- end }}
