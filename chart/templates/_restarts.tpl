{{- /* Exit codes that are worth a restart, as the list that podFailurePolicy's NotIn takes: ascending, each once; nothing
     where every code is. 0, which no failed container has, stands for none. A stage of Pai-Megatron that died (1) continues
     from what the attempt before has completed. */}}
{{- define "a4.finalCodes" -}}
{{- $codes := list -}}
{{- $given := .Values.workload.restartOn -}}
{{- if kindIs "invalid" $given -}}
  {{- $given = ternary (list 1 75 143) (list 75 143) (hasPrefix "pai-megatron-" (include "a4.task" . | fromJson).run) -}}
{{- end -}}
{{- range (include "a4.items" $given | fromJson).items -}}
  {{- with include "a4.text" .item }}{{ $codes = append $codes . }}{{ end -}}
{{- end -}}
{{- if not (has "any" $codes) -}}
  {{- $sorted := list -}}
  {{- range $codes }}{{ $sorted = append $sorted (printf "%03d" (atoi .)) }}{{ end -}}
  {{- $numbers := list -}}
  {{- range $sorted | uniq | sortAlpha }}{{ $numbers = append $numbers (regexReplaceAll "^0+" . "") }}{{ end -}}
  [{{ default "0" (join ", " $numbers) }}]
{{- end -}}
{{- end -}}
