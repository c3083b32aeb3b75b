{{- define "a4.domain" -}}
{{ (include "a4.size" . | fromJson).name }}.{{ .Release.Namespace }}.svc.{{ (.Values.network | default dict).clusterDomain | default "cluster.local" }}
{{- end -}}

{{- define "a4.grace" -}}
{{ include "a4.text" (.Values.workload | default dict).terminationGracePeriodSeconds | default "120" }}
{{- end -}}

{{- define "a4.sshPort" -}}
{{ include "a4.text" (.Values.network | default dict).sshPort | default "2222" }}
{{- end -}}

{{- define "a4.jobSecret" -}}
{{ (.Values.secret | default dict).name | default (printf "%s-job-secret" (include "a4.size" . | fromJson).name) }}
{{- end -}}

{{- /* Labels of every object. */}}
{{- define "a4.labels" -}}
app.kubernetes.io/name: a4-agent
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* Ends the rendering with everything that is wrong with the values, at once. Every template calls it first. */}}
{{- define "a4.check" -}}
{{- $workload := .Values.workload | default dict -}}
{{- $task := include "a4.task" . | fromJson -}}
{{- $storage := include "a4.storage" . | fromJson -}}
{{- $problems := list -}}
{{- if not $workload.image -}}
  {{- $problems = append $problems "workload.image is not set: name an image with a4-agent in it, such as REGISTRY/unified-testbed-pytorch:25.12" -}}
{{- end -}}
{{- if and (hasPrefix "pai-megatron" ($workload.run | default "")) (not (include "a4.workspace" . | fromJson).value) -}}
  {{- $problems = append $problems (printf "workload.run=%s keeps code, models and data on storage that all pods share, and there is none: set volumes.nfs.ip, volumes.lustre or volumes.pvcMounts" $workload.run) -}}
{{- end -}}
{{- $problems = concat $problems (include "a4.size" . | fromJson).problems $task.problems (include "a4.ownEnv" . | fromJson).problems $storage.problems (include "a4.network" . | fromJson).problems (include "a4.scheduling" . | fromJson).problems -}}
{{- if $problems -}}
  {{- fail (printf "a4-agent: these values cannot be used:\n- %s" (join "\n- " $problems)) -}}
{{- end -}}
{{- end -}}
