{{- /* Exit codes that are worth a restart, as the list that podFailurePolicy's NotIn takes: ascending, each once; nothing
     where every code is. 75 and 143 are always among them: a pod of a suspended Job or of one that lost a node ends with
     them, and would fail the JobSet for good. A stage of Pai-Megatron that died (1) continues from what the attempt before
     has completed. */}}
{{- define "a4.finalCodes" -}}
{{- $codes := list "75" "143" -}}
{{- $given := .Values.workload.restartOn -}}
{{- if kindIs "invalid" $given -}}
  {{- $given = ternary (list 1) list (hasPrefix "pai-megatron-" (include "a4.task" . | fromJson).run) -}}
{{- end -}}
{{- range (include "a4.items" $given | fromJson).items -}}
  {{- with include "a4.text" .item }}{{ $codes = append $codes . }}{{ end -}}
{{- end -}}
{{- if not (has "any" $codes) -}}
  {{- $sorted := list -}}
  {{- range $codes }}{{ $sorted = append $sorted (printf "%03d" (atoi .)) }}{{ end -}}
  {{- $numbers := list -}}
  {{- range $sorted | uniq | sortAlpha }}{{ $numbers = append $numbers (regexReplaceAll "^0+" . "") }}{{ end -}}
  [{{ join ", " $numbers }}]
{{- end -}}
{{- end -}}
