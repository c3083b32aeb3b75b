{{- /* Ends the rendering with everything that is wrong with the values, at once. Every template calls it first; what the
     first one has found good is not looked at again. */}}
{{- define "a4.check" -}}
{{- if not (hasKey .Values "a4Checked") }}{{ $_ := include "a4.checkAll" . | set .Values "a4Checked" }}{{ end -}}
{{- end -}}
{{- define "a4.checkAll" -}}
{{- /* The first: what others remember among the values is unknown, too. */}}
{{- $problems := (include "a4.unknown" . | fromJson).problems -}}
{{- $workload := .Values.workload | default dict -}}
{{- $task := include "a4.task" . | fromJson -}}
{{- $storage := include "a4.storage" . | fromJson -}}
{{- $unset := "workload.image is not set: name an image with a4-agent in it, such as REGISTRY/unified-testbed-pytorch:25.12-a4.1" -}}
{{- if regexMatch "[\\s<>$\"]" ($workload.image | default "") -}}
  {{- $problems = append $problems (printf "workload.image=%s is not an image: name one with a4-agent in it, such as REGISTRY/unified-testbed-pytorch:25.12-a4.1" $workload.image) -}}
{{- end -}}
{{- $old := "(^|/)(unified-testbed-pytorch:25\\.(06-py3|12)|testbed:nemo25\\.04-gib1\\.0\\.6-A4|nemo-deepep:25\\.11|pai_megatron_patch_a4:25\\.04|pai-megatron-patch:25\\.04)$" -}}
{{- if not $workload.agentImage -}}
  {{- range $of, $pattern := dict "the old testbeds" $old "NVIDIA" "^nvcr\\.io/nvidia/" "Google" "^[a-z0-9-]+-docker\\.pkg\\.dev/deeplearning-images/" -}}
    {{- if regexMatch $pattern ($workload.image | default "") -}}
      {{- $problems = append $problems (printf "workload.image=%s is an image of %s, which has no a4-agent: build the one that follows it, or one on top of it (docs/images.md), or add workload.agentImage=REGISTRY/a4-agent-cpu:debian12" $workload.image $of) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and (hasPrefix "pai-megatron" $task.run) (not (include "a4.workspace" . | fromJson).value) -}}
  {{- $problems = append $problems (printf "workload.run=%s keeps code, models and data on storage that all pods share, and there is none: set volumes.nfs.ip, volumes.lustre or volumes.pvcMounts" $task.run) -}}
{{- end -}}
{{- with .Values.workload_config -}}
  {{- $problems = concat $problems (include "a4.textProblems" (dict "key" "workload_config" "content" .) | fromJson).problems | default list -}}
{{- end -}}
{{- with (include "a4.givenArguments" . | fromJson).problem }}{{ $problems = append $problems . }}{{ end -}}
{{- $problems = concat $problems (include "a4.job" . | fromJson).problems $task.problems (include "a4.variables" . | fromJson).problems (include "a4.settings" . | fromJson).problems $storage.problems (include "a4.network" . | fromJson).problems (include "a4.metrics" . | fromJson).problems (include "a4.scheduling" . | fromJson).problems (include "a4.additions" . | fromJson).problems (include "a4.extraObjects" . | fromJson).problems -}}
{{- if $problems -}}
  {{- if not $workload.image }}{{ $problems = prepend $problems $unset }}{{ end -}}
  {{- /* Helm 3.6 says the path through all templates on the line before. */}}
  {{- fail (printf "\na4-agent: these values cannot be used:\n- %s" (join "\n- " $problems)) -}}
{{- end -}}
{{- /* `helm lint` lets what is required be missing, and nothing else is wrong with the chart's own values. */}}
{{- $_ := required (printf "a4-agent: %s" $unset) $workload.image -}}
{{- include "a4.checkUpgrade" . -}}
{{- end -}}

{{- /* What of the values was ignored or understood in another way: {notes}, each a sentence without its full stop. */}}
{{- define "a4.notes" -}}
{{- $workload := .Values.workload -}}
{{- $storage := include "a4.storage" . | fromJson -}}
{{- $workspace := include "a4.workspace" . | fromJson -}}
{{- $notes := concat (include "a4.task" . | fromJson).notes (include "a4.settings" . | fromJson).notes $storage.notes (include "a4.network" . | fromJson).notes (include "a4.scheduling" . | fromJson).notes | default list -}}
{{- with $workspace.note }}{{ $notes = append $notes . }}{{ end -}}
{{- if and .Values.pai_training_script (not $workspace.value) -}}
  {{- $notes = append $notes "the scripts of Pai-Megatron keep code, models and data on storage that all pods share, and there is none: set volumes.nfs.ip, volumes.lustre or volumes.pvcMounts" -}}
{{- end -}}
{{- if and $workload.gcsSidecarImage (not $storage.buckets) -}}
  {{- $notes = append $notes "workload.gcsSidecarImage does nothing without a bucket" -}}
{{- end -}}
{{- if and $workload.psSidecarImage (not $storage.parallelstore) -}}
  {{- $notes = append $notes "workload.psSidecarImage does nothing without volumes.psVolumes and a claim in volumes.pvcMounts" -}}
{{- end -}}
{{- if and $workload.configFile (not .Values.workload_config) -}}
  {{- $notes = append $notes (printf "workload.configFile=%s is the name of a file that is not given: add --set-file workload_config=%s" $workload.configFile $workload.configFile) -}}
{{- end -}}
{{- dict "notes" $notes | toJson -}}
{{- end -}}
