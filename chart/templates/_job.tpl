{{- /* How many pods, how many GPUs in each, and under which name: {name, gpus, nodes, gpusPerNode, whole, problems}; `whole` says
     whether each pod takes all GPUs of its node. */}}
{{- define "a4.job" -}}
{{- $problems := list -}}
{{- $workload := .Values.workload | default dict -}}
{{- $gpus := include "a4.text" $workload.gpus | atoi -}}
{{- $each := include "a4.text" $workload.gpusPerNode | default "8" | atoi -}}
{{- $nodes := max 1 (div $gpus $each) | int -}}
{{- if lt $gpus 1 -}}
  {{- $problems = append $problems (printf "workload.gpus is not a number above 0: write 1 to %d for one pod, or a multiple of %d" $each $each) -}}
{{- else if and (gt $gpus $each) (ne (mod $gpus $each | int) 0) -}}
  {{- $less := mul $each (div $gpus $each) -}}
  {{- $problems = append $problems (printf "workload.gpus=%d: write up to %d for one pod, or a multiple of %d (each pod has the %d GPUs of its node), such as %d or %d" $gpus $each $each $each $less (add $less $each)) -}}
{{- end -}}
{{- /* JobSet, Job and pods carry the release's name; it is a host name in DNS, so without dots. */}}
{{- $name := .Release.Name | replace "." "-" -}}
{{- /* The longest names are those of helm test's pods. */}}
{{- $room := sub 63 (len (printf "-helm-test-0-%d-xxxxx" (sub $nodes 1))) | int -}}
{{- if gt (len $name) $room -}}
  {{- $problems = append $problems (printf "the release's name %s has %d characters: with %d pods choose one of at most %d, for names of pods are longer by %d and 63 is the most" $name (len $name) $nodes $room (sub 63 $room)) -}}
{{- end -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
  {{- $problems = append $problems (printf "the release's name %s: choose one of small letters, digits and '-' that starts with a letter, for it becomes a name in DNS" $name) -}}
{{- end -}}
{{- if hasSuffix "-helm-test" $name -}}
  {{- $problems = append $problems (printf "the release's name %s: choose one that does not end in -helm-test, as the Service of helm test of another release does" $name) -}}
{{- end -}}
{{- dict "name" $name "gpus" $gpus "nodes" $nodes "gpusPerNode" (min $gpus $each) "whole" (ge $gpus $each) "problems" $problems | toJson -}}
{{- end -}}
