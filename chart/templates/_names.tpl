{{- define "a4.domain" -}}
{{ (include "a4.job" . | fromJson).name }}.{{ .Release.Namespace }}.svc.{{ (.Values.network | default dict).clusterDomain | default "cluster.local" }}
{{- end -}}

{{- define "a4.grace" -}}
{{ include "a4.text" (.Values.workload | default dict).terminationGracePeriodSeconds | default "120" | atoi }}
{{- end -}}

{{- define "a4.runDir" -}}
{{ get (include "a4.variables" . | fromJson).values "A4_RUN_DIR" | default "/run/a4-agent" }}
{{- end -}}

{{- define "a4.configPath" -}}
{{ (.Values.workload | default dict).configPath | default "/workload/configs" | clean }}
{{- end -}}

{{- define "a4.secretName" -}}
{{ (.Values.secret | default dict).name | default (printf "%s-job-secret" (include "a4.job" . | fromJson).name) }}
{{- end -}}

{{- /* Labels of pods: no versions, for a JobSet's pods cannot be changed by an upgrade. */}}
{{- define "a4.podLabels" -}}
app.kubernetes.io/name: a4-agent
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- /* Labels of every object. */}}
{{- define "a4.labels" -}}
{{ include "a4.podLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}
