{{- /* How many pods, how many GPUs in each, and under which name: {name, gpus, nodes, gpusPerNode, problems}. */}}
{{- define "a4.job" -}}
{{- $problems := list -}}
{{- $workload := .Values.workload | default dict -}}
{{- $gpus := include "a4.text" $workload.gpus | atoi -}}
{{- $nodes := max 1 (div $gpus 8) | int -}}
{{- if lt $gpus 1 -}}
  {{- $problems = append $problems "workload.gpus is no number above 0: write 1 to 8 for one pod, or a multiple of 8" -}}
{{- else if and (gt $gpus 8) (ne (mod $gpus 8) 0) -}}
  {{- $less := mul 8 (div $gpus 8) -}}
  {{- $problems = append $problems (printf "workload.gpus=%d: write up to 8 for one pod, or a multiple of 8 (each pod has the 8 GPUs of its node), such as %d or %d" $gpus $less (add $less 8)) -}}
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
{{- dict "name" $name "gpus" $gpus "nodes" $nodes "gpusPerNode" (min $gpus 8) "problems" $problems | toJson -}}
{{- end -}}
