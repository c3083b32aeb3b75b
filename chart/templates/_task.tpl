{{- /* A script as it is to be run: without the marks that Windows leaves. */}}
{{- define "a4.script" -}}
{{- . | trimPrefix "\ufeff" | replace "\r\n" "\n" -}}
{{- end -}}

{{- /* A script without comments, empty lines and `set -…`. */}}
{{- define "a4.bareScript" -}}
{{- regexReplaceAllLiteral "(?m)^[ \t]*(?:#.*|set [-+].*)?(?:\n|\\z)" (include "a4.script" .) "" | trim -}}
{{- end -}}

{{- /* What workload_launcher is: nothing, agent (starts a4-agent and no more), agent WORD (with a workload), bootstrap (starts sshd
     and writes the hostfile, as the old ones do), or a script. */}}
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
{{- $python := "^(?:import [A-Za-z_][\\w.]*(?:, *[A-Za-z_][\\w.]*)*(?: as \\w+)?[ \t]*(?:#|\n|$)|from [A-Za-z_][\\w.]* import |\"{3})" -}}
{{- if regexMatch "^[^ \t\n]+\\.(sh|bash|py)$" (trim $content) -}}
  {{- $problems = append $problems (printf "%s is the path %s and not a script: write --set-file %s=%s" .key (trim $content) .key (trim $content)) -}}
{{- else if and (hasPrefix "#!" $first) (not (regexMatch "(^|/|[ \t])(ba|da|)sh([ \t]|$)" $first)) -}}
  {{- $problems = append $problems (printf "%s starts with %s, and scripts are run by bash: call your program from a script of bash" .key $first) -}}
{{- else if and (not (hasPrefix "#!" $first)) (regexMatch $python (include "a4.bareScript" $content)) -}}
  {{- $problems = append $problems (printf "%s is Python, and scripts are run by bash: call your program from a script of bash" .key) -}}
{{- end -}}
{{- $problems = concat $problems (include "a4.textProblems" (dict "key" .key "content" $content) | fromJson).problems | default list -}}
{{- dict "problems" $problems | toJson -}}
{{- end -}}

{{- /* What is to be run of workload_launcher: {script, content, problem, note}; `script` says whether there is something. */}}
{{- define "a4.launcher" -}}
{{- $content := .Values.workload_launcher -}}
{{- $kind := include "a4.launcherKind" ($content | default "") -}}
{{- $old := dict -}}
{{- if eq $kind "bootstrap" -}}
  {{- $old = include "a4.oldLauncher" (dict "content" $content "launchers" (include "a4.oldScripts" . | fromYaml).launchers) | fromJson -}}
{{- end -}}
{{- if eq $kind "agent" -}}
  {{- dict "note" "workload_launcher only starts a4-agent: the chart does this now; drop the flag" | toJson -}}
{{- else if hasPrefix "agent " $kind -}}
  {{- dict "problem" (printf "workload_launcher starts a4-agent, which runs already: in its place set workload.run=%s (what follows --: workload.arguments)" (trimPrefix "agent " $kind)) | toJson -}}
{{- else if $old.own -}}
  {{- dict "script" true "content" $old.own "note" "workload_launcher is an old one with lines of your own: these are run, and the agent does the rest; give them as task_script" | toJson -}}
{{- else if $old.known -}}
  {{- $port := regexReplaceAll "^2222$" (include "a4.oldPort" .) "" -}}
  {{- dict "note" (printf "workload_launcher starts sshd and writes the hostfile: the agent does this now; drop the flag%s" (regexReplaceAll "^.+" $port ", and set network.sshPort=${0}")) | toJson -}}
{{- else if and (eq $kind "bootstrap") (ne ((.Values.workload | default dict).run | default "") "script") -}}
  {{- dict "problem" "workload_launcher starts sshd and writes the hostfile, which the agent does now, but the chart does not know it: it is not an old launcher, or one with other changes than lines at its end. Drop it, and give what else it does as task_script; to run it as it is, add workload.run=script" | toJson -}}
{{- else -}}
  {{- dict "script" (not (kindIs "invalid" $content)) "content" $content | toJson -}}
{{- end -}}
{{- end -}}

{{- /* Which script runs: {given, script: {key, path, content}, example, problems, notes}; `given` are the values that name one,
     `example` is an old one with what runs in its place, and the value that it stands in (`from`). */}}
{{- define "a4.scripts" -}}
{{- $launcher := include "a4.launcher" . | fromJson -}}
{{- $problems := without (list $launcher.problem) nil -}}
{{- $notes := without (list $launcher.note) nil -}}
{{- $given := list -}}
{{- $script := dict -}}
{{- $example := dict "workload" "" -}}
{{- $run := (.Values.workload | default dict).run | default "" -}}
{{- $scripts := list (dict "from" "task_script" "content" .Values.task_script "key" "task-script.sh" "path" "/workload/task") (dict "from" "pai_training_script" "content" .Values.pai_training_script "key" "pai-training-script.sh" "path" "/workload/scripts") -}}
{{- if $launcher.script -}}
  {{- $scripts = prepend $scripts (dict "from" "workload_launcher" "content" $launcher.content "key" "task-script.sh" "path" "/workload/task") -}}
{{- end -}}
{{- range $scripts -}}
  {{- if kindIs "invalid" .content -}}
  {{- else if include "a4.bareScript" .content -}}
    {{- $old := dict -}}
    {{- if ne $run "script" -}}
      {{- $old = include "a4.oldExample" (merge (dict "content" .content) (include "a4.oldScripts" $ | fromYaml)) | fromJson -}}
    {{- end -}}
    {{- $given = append $given .from -}}
    {{- if $old.changed -}}
      {{- $problems = append $problems (printf "%s is made from an example of the old testbeds, which can end with 0 after a failure: set workload.run=%s in its place, with what you have changed in workload.arguments and workload.env; to run the script as it is, add workload.run=script" .from $old.workload) -}}
    {{- else if and $old.workload (has $run (list "" $old.workload)) -}}
      {{- $example = set $old "from" .from -}}
    {{- else -}}
      {{- $script = dict "key" .key "path" .path "content" (include "a4.script" .content) -}}
      {{- $problems = concat $problems (include "a4.scriptProblems" (dict "key" .from "content" .content) | fromJson).problems | default list -}}
    {{- end -}}
  {{- else -}}
    {{- $notes = append $notes (printf "%s is empty and does nothing" .from) -}}
  {{- end -}}
{{- end -}}
{{- dict "given" $given "script" $script "example" $example "problems" $problems "notes" $notes | toJson -}}
{{- end -}}

{{- /* What is said of an old example: {notes}. Takes {example, values}. */}}
{{- define "a4.exampleNotes" -}}
{{- $example := .example -}}
{{- $with := $example.arguments | default list -}}
{{- $where := ternary ", these as workload.arguments" "" (not (empty $with)) -}}
{{- $variables := include "a4.exampleVariables" (dict "example" $example "mode" (get .values "TRAINING_MODE")) | fromJson -}}
{{- range $name := keys $variables | sortAlpha -}}
  {{- $with = append $with (printf "%s=%s" $name (get $.values $name)) -}}
  {{- $where = ", these in workload.env" -}}
{{- end -}}
{{- $runs := printf "%s is an example of the old testbeds: the workload %s runs in its place%s" $example.from $example.workload (regexReplaceAll "^.+" (join " " $with) " with ${0}") -}}
{{- dict "notes" (prepend ($example.differs | default list) (printf "%s; set workload.run=%s%s, and drop the flag" $runs $example.workload $where)) | toJson -}}
{{- end -}}

{{- /* What runs on the formed cluster: {run, arguments, runs, script, sleep, problems, notes}; `run` is workload.run or what
     replaces an old example, with `arguments`, and `runs` says whether there is anything to run. */}}
{{- define "a4.task" -}}
{{- $workload := .Values.workload | default dict -}}
{{- $values := (include "a4.variables" . | fromJson).values -}}
{{- $job := include "a4.job" . | fromJson -}}
{{- $scripts := include "a4.scripts" . | fromJson -}}
{{- $script := $scripts.script -}}
{{- $example := $scripts.example -}}
{{- $things := $scripts.given -}}
{{- $problems := $scripts.problems -}}
{{- $notes := $scripts.notes -}}

{{- $run := $workload.run | default "" -}}
{{- if and (not $run) (not (kindIs "invalid" $workload.run)) -}}
  {{- $notes = append $notes "workload.run is empty: if it came from a variable of your shell, that one is not set" -}}
{{- end -}}
{{- $deepep := include "a4.true" (get $values "RUN_DEEPEP_TEST") -}}
{{- if not (has $run (list "" "none" "script" $example.workload)) -}}
  {{- $things = append $things (printf "workload.run=%s" $run) -}}
{{- end -}}
{{- $run = $run | default $example.workload -}}
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
{{- if and (include "a4.givenArguments" . | fromJson).words (not $things) -}}
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
{{- if $example.workload -}}
  {{- $notes = concat $notes (include "a4.exampleNotes" (dict "example" $example "values" $values) | fromJson).notes -}}
{{- end -}}
{{- dict "run" $run "arguments" ($example.arguments | default list) "runs" (not (empty $things)) "script" $script "sleep" (eq $sleep "true") "problems" $problems "notes" $notes | toJson -}}
{{- end -}}

{{- /* The arguments of the values: {words, problem}. */}}
{{- define "a4.givenArguments" -}}
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
    {{- $problem = printf "workload.%s is not a list: write --set 'workload.%s={-b,1G,-e,8G}'" $key $key -}}
  {{- end -}}
{{- end -}}
{{- dict "words" $words "problem" $problem | toJson -}}
{{- end -}}

{{- /* All arguments of the workload, those that the values have before those of an old example: {words}. */}}
{{- define "a4.arguments" -}}
{{- dict "words" ((include "a4.givenArguments" . | fromJson).words | default (include "a4.task" . | fromJson).arguments) | toJson -}}
{{- end -}}
