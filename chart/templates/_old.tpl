{{- define "a4.oldScripts" -}}
{{ .Files.Get "files/old-scripts.yaml" }}
{{- end -}}

{{- /* A script's lines as files/old-scripts.yaml counts them: without indentation, comments and empty lines. */}}
{{- define "a4.bareLines" -}}
{{- $text := regexReplaceAll "(?m)^[ \t]+|[ \t]+$" (include "a4.script" .) "" -}}
{{- regexReplaceAllLiteral "(?m)^(?:#.*)?(?:\n|\\z)" $text "" | trim -}}
{{- end -}}

{{- /* A part of a script as it was written, from one bare line up to another. Takes {content, from, to}. */}}
{{- define "a4.linesBetween" -}}
{{- $seen := 0 -}}
{{- $kept := list -}}
{{- range include "a4.script" .content | splitList "\n" -}}
  {{- if and (ge $seen $.from) (lt $seen $.to) }}{{ $kept = append $kept . }}{{ end -}}
  {{- if include "a4.bareLines" . }}{{ $seen = add1 $seen | int }}{{ end -}}
{{- end -}}
{{- join "\n" $kept }}
{{ end -}}

{{- /* Whether a script is a launcher of the old charts: {known, own}. `own` are lines that somebody has added at its end or before
     it sleeps, when everything is prepared. A launcher with other changes is not known. Takes {content, launchers}. */}}
{{- define "a4.oldLauncher" -}}
{{- $content := .content -}}
{{- $lines := include "a4.bareLines" $content | splitList "\n" -}}
{{- $count := len $lines -}}
{{- $sleep := 0 -}}
{{- range $at, $line := $lines -}}
  {{- if regexMatch "^if .*SLEEP_INFINITY" $line }}{{ $sleep = $at }}{{ end -}}
{{- end -}}
{{- $found := dict "known" false "own" "" -}}
{{- range $launcher := .launchers -}}
  {{- $added := sub $count $launcher.lines | int -}}
  {{- range $from := ternary (list (int $launcher.lines) (sub $sleep $added | int)) list (ge $added 0) -}}
    {{- if and (not $found.known) (ge $from 0) -}}
      {{- $to := add $from $added | int -}}
      {{- if eq $launcher.sha256 (concat (slice $lines 0 $from) (slice $lines $to) | join "\n" | sha256sum) -}}
        {{- $own := ternary (include "a4.linesBetween" (dict "content" $content "from" $from "to" $to)) "" (gt $added 0) -}}
        {{- $found = dict "known" true "own" $own -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{- /* The port that an old launcher starts sshd on. */}}
{{- define "a4.oldPort" -}}
{{- $launcher := .Values.workload_launcher | default "" -}}
{{- if contains "sshd" $launcher -}}
  {{- if (include "a4.oldLauncher" (dict "content" $launcher "launchers" (include "a4.oldScripts" . | fromYaml).launchers) | fromJson).known -}}
    {{- regexFind "sshd -p [0-9]+" $launcher | trimPrefix "sshd -p " -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* Which example of the old testbeds a script is: {workload, changed} and what files/old-scripts.yaml has of it; workload is
     empty if it is none. Takes {content, examples, lines}. */}}
{{- define "a4.oldExample" -}}
{{- $bare := include "a4.bareLines" .content -}}
{{- $all := sha256sum $bare -}}
{{- $found := dict "workload" "" -}}
{{- range .examples -}}
  {{- if has $all .sha256 }}{{ $found = omit . "sha256" }}{{ end -}}
{{- end -}}
{{- if not $found.workload -}}
  {{- $each := dict -}}
  {{- range splitList "\n" $bare }}{{ $_ := set $each (sha256sum .) true }}{{ end -}}
  {{- range $workload, $telling := .lines -}}
    {{- range $telling -}}
      {{- if hasKey $each . }}{{ $found = dict "workload" $workload "changed" true }}{{ end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{- /* The variables that make a workload do what an old example did, in a training of this mode. Takes {example, mode}. */}}
{{- define "a4.exampleVariables" -}}
{{- $variables := .example.variables | default dict -}}
{{- merge (dict) $variables (get .example (.mode | default "pretrain") | default dict) | toJson -}}
{{- end -}}
