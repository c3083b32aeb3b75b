{{- /* Values that the chart does not know: {problems}, with the nearest that it knows. They are closed in values.strict.schema.json
     and open in values.schema.json, which Helm reads: its words for an unknown value are only that there is one. */}}
{{- define "a4.unknown" -}}
{{- $schema := .Files.Get "values.strict.schema.json" | fromJson -}}
{{- $problems := list -}}
{{- with (include "a4.unknownIn" (dict "value" .Values "schema" $schema "path" "") | fromJson).found | default list -}}
  {{- $paths := (include "a4.knownPaths" (dict "schema" $schema "path" "") | fromJson).paths | default list -}}
  {{- range . -}}
    {{- $meant := include "a4.nearest" (dict "key" .key "paths" .siblings "least" 50) -}}
    {{- if and (not $meant) (lt (splitList "." .path | len) 3) -}}
      {{- $meant = include "a4.nearest" (dict "key" .key "paths" $paths "least" 75) -}}
    {{- end -}}
    {{- $hint := printf "did you mean %s?" $meant -}}
    {{- if not $meant }}{{ $hint = "chart/values.yaml lists all" }}{{ end -}}
    {{- $problems = append $problems (printf "%s: there is no such value; %s" .path $hint) -}}
  {{- end -}}
{{- end -}}
{{- dict "problems" $problems | toJson -}}
{{- end -}}

{{- /* {found}: {path, key, siblings} of each unknown key; siblings are the paths that are known in its map. Takes {value, schema,
     path}. */}}
{{- define "a4.unknownIn" -}}
{{- $found := list -}}
{{- $path := .path -}}
{{- $schema := .schema -}}
{{- $known := $schema.properties | default dict -}}
{{- if kindIs "map" .value -}}
  {{- range $key, $value := .value -}}
    {{- $here := printf "%s.%s" $path $key | trimPrefix "." -}}
    {{- $inner := get $known $key -}}
    {{- range $pattern, $other := $schema.patternProperties -}}
      {{- if regexMatch $pattern $key }}{{ $inner = $other }}{{ end -}}
    {{- end -}}
    {{- if $inner -}}
      {{- $found = concat $found (include "a4.unknownIn" (dict "value" $value "schema" $inner "path" $here) | fromJson).found | default list -}}
    {{- else if $known -}}
      {{- $siblings := list -}}
      {{- range $name, $_ := $known }}{{ $siblings = append $siblings (printf "%s.%s" $path $name | trimPrefix ".") }}{{ end -}}
      {{- $found = append $found (dict "path" $here "key" $key "siblings" $siblings) -}}
    {{- end -}}
  {{- end -}}
{{- else if and (kindIs "slice" .value) $schema.items -}}
  {{- range $at, $item := .value -}}
    {{- $found = concat $found (include "a4.unknownIn" (dict "value" $item "schema" $schema.items "path" (printf "%s[%d]" $path $at)) | fromJson).found | default list -}}
  {{- end -}}
{{- end -}}
{{- dict "found" $found | toJson -}}
{{- end -}}

{{- /* {paths} of all values, but of those in lists. Takes {schema, path}. */}}
{{- define "a4.knownPaths" -}}
{{- $paths := list -}}
{{- $path := .path -}}
{{- range $key, $inner := .schema.properties -}}
  {{- $here := printf "%s.%s" $path $key | trimPrefix "." -}}
  {{- $paths = concat (append $paths $here) (include "a4.knownPaths" (dict "schema" $inner "path" $here) | fromJson).paths | default list -}}
{{- end -}}
{{- dict "paths" $paths | toJson -}}
{{- end -}}

{{- /* The path whose last word has the same letters as the key, or nearly all of its pairs of letters, or shares the most
     pairs of letters with it, at least so many percent; or nothing. Takes {key, paths, least}. */}}
{{- define "a4.nearest" -}}
{{- $key := include "a4.letters" .key | fromJson -}}
{{- $best := "" -}}
{{- $most := sub .least 1 -}}
{{- range .paths -}}
  {{- $other := include "a4.letters" (splitList "." . | last) | fromJson -}}
  {{- $common := 0 -}}
  {{- range $key.pairs }}{{ if has . $other.pairs }}{{ $common = add1 $common }}{{ end }}{{ end -}}
  {{- $score := div (mul 200 $common) (add (len $key.pairs) (len $other.pairs) | max 1) -}}
  {{- if and (gt (len $key.pairs) 5) (ge (mul 10 $common) (mul 9 (len $key.pairs))) }}{{ $score = max $score 80 }}{{ end -}}
  {{- if eq $key.sorted $other.sorted }}{{ $score = max $score 90 }}{{ end -}}
  {{- if gt $score $most }}{{ $best = . }}{{ $most = $score }}{{ end -}}
{{- end -}}
{{- $best -}}
{{- end -}}

{{- /* {pairs, sorted}: each two letters of a word that follow each other, and all of its letters. */}}
{{- define "a4.letters" -}}
{{- $letters := lower . | splitList "" -}}
{{- $pairs := list -}}
{{- range $at, $letter := rest $letters }}{{ $pairs = append $pairs (printf "%s%s" (index $letters $at) $letter) }}{{ end -}}
{{- dict "pairs" $pairs "sorted" (sortAlpha $letters | join "") | toJson -}}
{{- end -}}
