{{- /* Exit codes that are worth a restart of the whole job, as {codes, any}: 75 and 143, which `finalCodes` explains, and those
     of workload.restartOn. A stage of Pai-Megatron that died (1) continues from what the attempt before has completed. */}}
{{- define "a4.restartCodes" -}}
{{- $codes := list "75" "143" -}}
{{- $given := .Values.workload.restartOn -}}
{{- if kindIs "invalid" $given -}}
  {{- $given = ternary (list 1) list (hasPrefix "pai-megatron-" (include "a4.task" . | fromJson).run) -}}
{{- end -}}
{{- range (include "a4.items" $given | fromJson).items -}}
  {{- with include "a4.text" .item }}{{ $codes = append $codes . }}{{ end -}}
{{- end -}}
{{- $sorted := list -}}
{{- range without $codes "any" }}{{ $sorted = append $sorted (printf "%03d" (atoi .)) }}{{ end -}}
{{- $numbers := list -}}
{{- range $sorted | uniq | sortAlpha }}{{ $numbers = append $numbers (regexReplaceAll "^0+" . "") }}{{ end -}}
{{- dict "codes" $numbers "any" (has "any" $codes) | toJson -}}
{{- end -}}

{{- /* The same as the list that podFailurePolicy's NotIn takes: ascending, each once; nothing where every code is worth it. 75
     and 143 are always among them: a pod of a suspended Job or of one that lost a node ends with them, and would fail the
     JobSet for good. */}}
{{- define "a4.finalCodes" -}}
{{- $restart := include "a4.restartCodes" . | fromJson -}}
{{- if not $restart.any }}[{{ join ", " $restart.codes }}]{{ end -}}
{{- end -}}

{{- /* How often a run may start again on the same pods and the replacements of lost ones. */}}
{{- define "a4.lives" -}}
{{- include "a4.text" (.Values.workload | default dict).lives | default "0" | atoi -}}
{{- end -}}

{{- /* With lives: codes for which the JobSet starts all pods anew, as alternatives of a pattern. 79 is the agent's word for lives
     that are used up. 75, 137 and 143 never fail the Job. */}}
{{- define "a4.anewCodes" -}}
{{- $codes := without (include "a4.restartCodes" . | fromJson).codes "75" "137" "143" -}}
{{- append $codes "79" | uniq | join "|" -}}
{{- end -}}

{{- /* true or nothing. */}}
{{- define "a4.everyCodeRestarts" -}}
{{- if (include "a4.restartCodes" . | fromJson).any }}true{{ end -}}
{{- end -}}
