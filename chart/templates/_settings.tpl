{{- /* The settings of the agent among the variables, which would end every pod with 78 if they were wrong: {problems, notes}. */}}
{{- define "a4.settings" -}}
{{- $settings := .Files.Get "files/settings.yaml" | fromYaml -}}
{{- $problems := list -}}
{{- $notes := list -}}
{{- range (include "a4.variables" . | fromJson).entries -}}
  {{- $value := .value | default "" -}}
  {{- $takes := get $settings .name -}}
  {{- if hasKey $settings .name -}}
    {{- /* A4_RUN_DIR has a rule of its own, in _variables.tpl: templates need its value. */}}
    {{- if and $value $takes.pattern (ne .name "A4_RUN_DIR") (not (include "a4.takes" (dict "takes" $takes "value" $value))) -}}
      {{- /* By its number in a list, a token may have come to another name than it was meant for: those lists have no A4_. */}}
      {{- $problems = append $problems (printf "%s should be %s" (ternary (printf "%s=%s" .name $value) .name (hasPrefix "A4_" .name)) $takes.wanted) -}}
    {{- end -}}
  {{- else if hasPrefix "A4_" .name -}}
    {{- $meant := include "a4.nearest" (dict "key" .name "paths" (keys $settings | sortAlpha) "least" 80) -}}
    {{- if $meant -}}
      {{- $problems = append $problems (printf "%s is none of a4-agent's settings: did you mean %s?" .name $meant) -}}
    {{- else -}}
      {{- $notes = append $notes (printf "%s is none of a4-agent's settings (docs/settings.md): only your own programs read it" .name) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- dict "problems" $problems "notes" $notes | toJson -}}
{{- end -}}

{{- /* Does a setting take this value? Takes {takes, value}. */}}
{{- define "a4.takes" -}}
{{- $fits := regexMatch (printf "^(%s)$" .takes.pattern) .value -}}
{{- if and $fits (regexMatch "^[0-9]+([.][0-9]+)?$" .value) -}}
  {{- $number := float64 .value -}}
  {{- $fits = or (and .takes.orZero (eq $number 0.0)) (and (ge $number (float64 (.takes.least | default 0))) (le $number (float64 (.takes.most | default $number)))) -}}
{{- end -}}
{{- if $fits }}true{{ end -}}
{{- end -}}
