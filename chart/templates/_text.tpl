{{- /* A value as it was written: YAML's whole numbers reach templates as floats, which print as 8.388608e+06. */}}
{{- define "a4.text" -}}
{{- if kindIs "invalid" . -}}
{{- else if kindIs "float64" . -}}
  {{- if eq . (floor .) }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end -}}
{{- else -}}
  {{- . | toString -}}
{{- end -}}
{{- end -}}

{{- /* true or nothing, from a boolean or its word. */}}
{{- define "a4.true" -}}
{{- if eq (include "a4.text" . | trim | lower) "true" }}true{{ end -}}
{{- end -}}

{{- /* A list as {items: […]}, without the holes that `--set list[5]=…` leaves; each item keeps its number as `at`. */}}
{{- define "a4.items" -}}
{{- $items := list -}}
{{- range $at, $item := . -}}
  {{- if not (kindIs "invalid" $item) -}}
    {{- $items = append $items (dict "at" $at "item" $item) -}}
  {{- end -}}
{{- end -}}
{{- dict "items" $items | toJson -}}
{{- end -}}

{{- /* Anything without its nulls, which mean "not set" in values, as {is: …}. */}}
{{- define "a4.whole" -}}
{{- if kindIs "map" . -}}
  {{- $whole := dict -}}
  {{- range $key, $value := . -}}
    {{- if not (kindIs "invalid" $value) -}}
      {{- $_ := set $whole $key (include "a4.whole" $value | fromJson).is -}}
    {{- end -}}
  {{- end -}}
  {{- dict "is" $whole | toJson -}}
{{- else if kindIs "slice" . -}}
  {{- $whole := list -}}
  {{- range . -}}
    {{- if not (kindIs "invalid" .) -}}
      {{- $whole = append $whole (include "a4.whole" . | fromJson).is -}}
    {{- end -}}
  {{- end -}}
  {{- dict "is" $whole | toJson -}}
{{- else -}}
  {{- dict "is" . | toJson -}}
{{- end -}}
{{- end -}}

{{- /* Maps of names and texts, such as labels, as YAML; what comes first counts. */}}
{{- define "a4.texts" -}}
{{- $all := dict -}}
{{- range . -}}
  {{- range $key, $value := . | default dict -}}
    {{- if not (or (kindIs "invalid" $value) (hasKey $all $key)) }}{{ $_ := set $all $key (include "a4.text" $value) }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- range $key, $value := $all }}
{{ $key | quote }}: {{ $value | quote }}
{{- end -}}
{{- end -}}

{{- /* Names, from a list or from words with commas between them: {names}. */}}
{{- define "a4.words" -}}
{{- $names := list -}}
{{- $given := . | default list -}}
{{- if kindIs "string" $given }}{{ $given = splitList "," $given }}{{ end -}}
{{- range (include "a4.items" $given | fromJson).items -}}
  {{- with include "a4.text" .item | trim }}{{ $names = append $names . }}{{ end -}}
{{- end -}}
{{- dict "names" (uniq $names) | toJson -}}
{{- end -}}
