{{- /* Exit codes that are worth a restart, as the list that podFailurePolicy's NotIn takes: ascending, each once; nothing
     where every code is. 0, which no failed container has, stands for none. */}}
{{- define "a4.finalCodes" -}}
{{- $codes := list -}}
{{- range (include "a4.items" (.Values.workload.restartOn | default list) | fromJson).items -}}
  {{- $codes = append $codes (include "a4.text" .item) -}}
{{- end -}}
{{- if not (has "any" $codes) -}}
  {{- $sorted := list -}}
  {{- range $codes }}{{ $sorted = append $sorted (printf "%03d" (int .)) }}{{ end -}}
  {{- $numbers := list -}}
  {{- range $sorted | uniq | sortAlpha }}{{ $numbers = append $numbers (regexReplaceAll "^0+" . "") }}{{ end -}}
  [{{ default "0" (join ", " $numbers) }}]
{{- end -}}
{{- end -}}
