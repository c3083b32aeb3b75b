{{- /* A script as it is to be run: without the marks that Windows leaves. */}}
{{- define "a4.script" -}}
{{- . | trimPrefix "\ufeff" | replace "\r\n" "\n" -}}
{{- end -}}

{{- /* A script without comments, empty lines and `set -…`. */}}
{{- define "a4.bareScript" -}}
{{- regexReplaceAllLiteral "(?m)^[ \t]*(?:#.*|set [-+].*)?(?:\n|\\z)" (include "a4.script" .) "" | trim -}}
{{- end -}}

{{- /* What workload_launcher is: nothing, agent (starts a4-agent and no more), agent WORD (with a workload), bootstrap (an old one,
     which starts sshd and writes the hostfile), or a script. */}}
{{- define "a4.launcherKind" -}}
{{- $bare := include "a4.bareScript" . -}}
{{- $agent := "^(?:exec[ \t]+)?(?:[^ \t\n]*/)?a4-agent[ \t]+run" -}}
{{- $sshd := "(?m)(^|[;&|({])[ \t]*((exec|sudo|nohup)[ \t]+)?(/usr)?(/sbin/)?sshd([ \t;&]|$)|service[ \t]+sshd?[ \t]+(re)?start|/etc/init.d/ssh" -}}
{{- $writes := "(?m)(>|tee[ \t][^|\n]*|scp[ \t][^\n]*)[ \t]*[\"']?/etc/job-worker-services|^[ \t]*((export|local|readonly)[ \t]+)?[A-Za-z_]+=[\"']?/etc/job-worker-services" -}}
{{- if not $bare -}}
{{- else if regexMatch (printf "%s([ \t]+\"?\\$[@*]\"?)?[ \t]*;?$" $agent) $bare -}}
agent
{{- else if regexMatch (printf "%s[ \t]" $agent) $bare -}}
agent {{ regexReplaceAll (printf "(?s)%s[ \t]+([a-z0-9-]*).*" $agent) $bare "${1}" | default "WORKLOAD" }}
{{- else if and (regexMatch $sshd $bare) (regexMatch $writes $bare) -}}
bootstrap
{{- else -}}
script
{{- end -}}
{{- end -}}

{{- /* What is wrong with a file that is to be in pods, as sentences. Takes {key, content}. */}}
{{- define "a4.textProblems" -}}
{{- $problems := list -}}
{{- /* JSON has a mark for what is no UTF-8. */}}
{{- if contains "\ufffd" (dict "text" .content | toJson | fromJson).text -}}
  {{- $problems = append $problems (printf "%s is not text in UTF-8: convert it (iconv -t UTF-8)" .key) -}}
{{- end -}}
{{- /* Helm keeps values and objects, with the file in both, in one Secret of at most 1 MiB. */}}
{{- if gt (len .content) 400000 -}}
  {{- $problems = append $problems (printf "%s is larger than 400,000 bytes: bake it into the image, and start it from a small one" .key) -}}
{{- end -}}
{{- dict "problems" $problems | toJson -}}
{{- end -}}

{{- /* What is wrong with a script that is to be run, as sentences. Takes {key, content}. */}}
{{- define "a4.scriptProblems" -}}
{{- $problems := list -}}
{{- $content := include "a4.script" .content -}}
{{- $first := splitList "\n" $content | first | trim -}}
{{- if regexMatch "^[^ \t\n]+\\.(sh|bash|py)$" (trim $content) -}}
  {{- $problems = append $problems (printf "%s is the path %s and not a script: write --set-file %s=%s" .key (trim $content) .key (trim $content)) -}}
{{- else if and (hasPrefix "#!" $first) (not (regexMatch "(^|/|[ \t])(ba|da|)sh([ \t]|$)" $first)) -}}
  {{- $problems = append $problems (printf "%s starts with %s, and scripts are run by bash: call your program from a script of bash" .key $first) -}}
{{- end -}}
{{- $problems = concat $problems (include "a4.textProblems" (dict "key" .key "content" $content) | fromJson).problems | default list -}}
{{- dict "problems" $problems | toJson -}}
{{- end -}}

{{- /* What runs on the formed cluster: {run, runs, script: {key, path, content}, sleep, problems, notes}; `run` is workload.run,
     `runs` says whether there is anything to run. */}}
{{- define "a4.task" -}}
{{- $problems := list -}}
{{- $notes := list -}}
{{- $workload := .Values.workload | default dict -}}
{{- $values := (include "a4.variables" . | fromJson).values -}}
{{- $job := include "a4.job" . | fromJson -}}
{{- $things := list -}}
{{- $script := dict -}}

{{- $launcher := .Values.workload_launcher | default "" -}}
{{- $kind := include "a4.launcherKind" $launcher -}}
{{- if eq $kind "agent" -}}
  {{- $notes = append $notes "workload_launcher only starts a4-agent: the chart does this now; drop the flag" -}}
{{- else if hasPrefix "agent " $kind -}}
  {{- $problems = append $problems (printf "workload_launcher starts a4-agent, which runs already: in its place set workload.run=%s (what follows --: workload.arguments)" (trimPrefix "agent " $kind)) -}}
{{- else if eq $kind "bootstrap" -}}
  {{- $notes = append $notes "workload_launcher starts sshd and writes the hostfile: the agent does this now; drop the flag" -}}
  {{- if not (contains "test_internode" $launcher) -}}
    {{- range regexFindAll "(?m)^[ \t]*(mpirun|torchrun|python3?|deepspeed|accelerate|srun)[ \t][^\n]{0,60}" (include "a4.bareScript" $launcher) 3 -}}
      {{- $notes = append $notes (printf "workload_launcher also has the line \"%s\", which is not run: if you need it, give it as task_script" (trim .)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $scripts := list (dict "from" "task_script" "content" .Values.task_script "key" "task-script.sh" "path" "/workload/task") (dict "from" "pai_training_script" "content" .Values.pai_training_script "key" "pai-training-script.sh" "path" "/workload/scripts") -}}
{{- if has $kind (list "script" "") -}}
  {{- $scripts = prepend $scripts (dict "from" "workload_launcher" "content" .Values.workload_launcher "key" "task-script.sh" "path" "/workload/task") -}}
{{- end -}}
{{- range $scripts -}}
  {{- if kindIs "invalid" .content -}}
  {{- else if include "a4.bareScript" .content -}}
    {{- $things = append $things .from -}}
    {{- $script = dict "key" .key "path" .path "content" (include "a4.script" .content) -}}
    {{- $problems = concat $problems (include "a4.scriptProblems" (dict "key" .from "content" .content) | fromJson).problems | default list -}}
  {{- else -}}
    {{- $notes = append $notes (printf "%s is empty and does nothing" .from) -}}
  {{- end -}}
{{- end -}}

{{- $run := $workload.run | default "" -}}
{{- if and (not $run) (not (kindIs "invalid" $workload.run)) -}}
  {{- $notes = append $notes "workload.run is empty: if it came from a variable of your shell, that one is not set" -}}
{{- end -}}
{{- $deepep := include "a4.true" (get $values "RUN_DEEPEP_TEST") -}}
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
{{- if and (eq $run "none") $things -}}
  {{- $problems = append $problems (printf "workload.run=none beside %s: drop one of them" (first $things)) -}}
{{- end -}}
{{- if and (include "a4.arguments" . | fromJson).words (not $things) -}}
  {{- $problems = append $problems "workload.arguments without anything to run: set workload.run too" -}}
{{- end -}}
{{- if and (or $deepep (eq $run "deepep")) (lt (int $job.nodes) 2) -}}
  {{- $problems = append $problems (printf "deepep tests pods against each other: set workload.gpus to %d or more" (mul 2 (max 1 (include "a4.text" $workload.gpusPerNode | default "8" | atoi)))) -}}
{{- end -}}

{{- $sleep := coalesce (get $values "SLEEP_INFINITY") (include "a4.text" $workload.sleepInfinity) (ternary "true" "false" (empty $things)) | trim | lower -}}
{{- if and (eq $sleep "true") (eq (include "a4.text" $workload.sleepInfinity) "false") -}}
  {{- /* Some old values files preset SLEEP_INFINITY with true: what was written beside that holds. */}}
  {{- $sleep = "false" -}}
  {{- $notes = append $notes "SLEEP_INFINITY is true and workload.sleepInfinity false: the cluster is not kept after the run; to keep it, drop the latter" -}}
{{- else if not (has $sleep (list "true" "false")) -}}
  {{- /* Its value is not shown: in other lists of the old charts a token stands at this place. */}}
  {{- $problems = append $problems "SLEEP_INFINITY (also: workload.envs[1] without a name) is neither true nor false: write one of them" -}}
{{- end -}}
{{- dict "run" $run "runs" (not (empty $things)) "script" $script "sleep" (eq $sleep "true") "problems" $problems "notes" $notes | toJson -}}
{{- end -}}

{{- /* All arguments of the workload: {words, problem}. */}}
{{- define "a4.arguments" -}}
{{- $words := list -}}
{{- $problem := "" -}}
{{- range $key := list "defaultArguments" "arguments" -}}
  {{- $given := get ($.Values.workload | default dict) $key | default list -}}
  {{- if eq (toJson $given) "[\"\"]" -}}
    {{- /* What Helm 3 makes of {}. */}}
  {{- else if kindIs "slice" $given -}}
    {{- range (include "a4.items" $given | fromJson).items -}}
      {{- $words = append $words (include "a4.text" .item) -}}
    {{- end -}}
  {{- else -}}
    {{- $problem = printf "workload.%s is no list: write --set 'workload.%s={-b,1G,-e,8G}'" $key $key -}}
  {{- end -}}
{{- end -}}
{{- dict "words" $words "problem" $problem | toJson -}}
{{- end -}}
