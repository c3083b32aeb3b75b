{{- /* A script without comments, empty lines and `set -…`. */}}
{{- define "a4.bareScript" -}}
{{- regexReplaceAllLiteral "(?m)^[ \t]*(?:#.*|set [-+].*)?\r?(?:\n|\\z)" . "" | trim -}}
{{- end -}}

{{- /* What runs on the formed cluster: {run, script: {key, path, content}, sleep, problems, notes}. */}}
{{- define "a4.task" -}}
{{- $problems := list -}}
{{- $notes := list -}}
{{- $workload := .Values.workload | default dict -}}
{{- $env := (include "a4.ownEnv" . | fromJson).values -}}
{{- $things := list -}}
{{- $script := dict -}}

{{- $launcher := .Values.workload_launcher | default "" -}}
{{- $bare := include "a4.bareScript" $launcher -}}
{{- if regexMatch "^(exec[ \t]+)?a4-agent[ \t]+run([ \t]+\"?\\$[@*]\"?)?$" $bare -}}
  {{- $notes = append $notes "workload_launcher only starts a4-agent: the chart does this now; drop the flag" -}}
{{- else if regexMatch "^(exec[ \t]+)?a4-agent[ \t]+run[ \t]" $bare -}}
  {{- $word := regexReplaceAll "(?s)^(?:exec[ \t]+)?a4-agent[ \t]+run[ \t]+([a-z0-9-]*).*" $bare "${1}" -}}
  {{- $problems = append $problems (printf "workload_launcher starts a4-agent, which runs already: in its place set workload.run=%s (what follows --: workload.arguments)" (default "WORKLOAD" $word)) -}}
{{- else if and (regexMatch "(?m)(^|[ \t;&|/])sshd([ \t;&|]|$)" $bare) (contains "job-worker-services" $bare) -}}
  {{- $notes = append $notes "workload_launcher starts sshd and writes the hostfile: the agent does this now; drop the flag" -}}
  {{- $foreign := regexFind "(?m)^[ \t]*(mpirun|torchrun)[ \t]" $bare | trim -}}
  {{- if and $foreign (not (contains "test_internode" $bare)) -}}
    {{- $notes = append $notes (printf "the line of workload_launcher that starts with %s is not run either: if you need it, give it as task_script" $foreign) -}}
  {{- end -}}
{{- else if $bare -}}
  {{- $things = append $things "workload_launcher" -}}
  {{- $script = dict "key" "task-script.sh" "path" "/workload/task" "content" $launcher -}}
{{- end -}}

{{- with .Values.pai_training_script -}}
  {{- $things = append $things "pai_training_script" -}}
  {{- $script = dict "key" "pai-training-script.sh" "path" "/workload/scripts" "content" . -}}
{{- end -}}
{{- with .Values.task_script -}}
  {{- $things = append $things "task_script" -}}
  {{- $script = dict "key" "task-script.sh" "path" "/workload/task" "content" . -}}
{{- end -}}

{{- $run := $workload.run | default "" -}}
{{- $deepep := include "a4.true" (get $env "RUN_DEEPEP_TEST") -}}
{{- if and $run (not (has $run (list "none" "script"))) -}}
  {{- $things = append $things (printf "workload.run=%s" $run) -}}
{{- end -}}
{{- if and $deepep (ne $run "deepep") -}}
  {{- $things = append $things "RUN_DEEPEP_TEST=true" -}}
{{- end -}}
{{- if gt (len $things) 1 -}}
  {{- $problems = append $problems (printf "one job runs one thing, and here are %s: drop all but one" (join ", " $things)) -}}
{{- end -}}
{{- if and (eq $run "script") (not $script) -}}
  {{- $problems = append $problems "workload.run=script without a script: add --set-file task_script=FILE" -}}
{{- end -}}
{{- if and (eq $run "none") $script -}}
  {{- $problems = append $problems (printf "workload.run=none beside %s: drop one of them" (first $things)) -}}
{{- end -}}
{{- /* A ConfigMap holds 1 MiB. */}}
{{- if gt (len ($script.content | default "")) 1000000 -}}
  {{- $problems = append $problems (printf "%s is larger than the 1,000,000 bytes that fit into a ConfigMap: bake it into the image, and start it from a small one" (first $things)) -}}
{{- end -}}
{{- $runs := or $deepep (and $run (ne $run "none")) $script -}}
{{- if and (or $deepep (eq $run "deepep")) (lt (include "a4.text" $workload.gpus | int) 16) -}}
  {{- $problems = append $problems "deepep tests pods against each other: set workload.gpus to 16 or more" -}}
{{- end -}}

{{- $sleep := coalesce (get $env "SLEEP_INFINITY") (include "a4.text" $workload.sleepInfinity) (ternary "false" "true" (not (empty $runs))) | trim | lower -}}
{{- if not (has $sleep (list "true" "false")) -}}
  {{- $problems = append $problems (printf "SLEEP_INFINITY=%s: write true or false" $sleep) -}}
{{- end -}}
{{- dict "run" $run "runs" (not (empty $runs)) "script" $script "sleep" (eq $sleep "true") "problems" $problems "notes" $notes | toJson -}}
{{- end -}}
