{{- /* Annotations of pods: the checksums of what they mount, since JobSet refuses an upgrade that changes its pods. */}}
{{- define "a4.checksums" -}}
{{- $own := dict -}}
{{- with (include "a4.task" . | fromJson).script }}{{ $_ := set $own "checksum/script" (.content | sha256sum) }}{{ end -}}
{{- with .Values.workload_config }}{{ $_ := set $own "checksum/config" (sha256sum .) }}{{ end -}}
{{- toJson $own -}}
{{- end -}}

{{- /* Ends an upgrade that a running job cannot take, before Helm has changed anything: it patches ConfigMaps and Secrets
     before JobSet refuses, and a running pod, or the next attempt, would then read the new ones. Kueue suspends a running
     job whose queue changes. Without a cluster (`helm template`) nothing is found. */}}
{{- define "a4.checkUpgrade" -}}
{{- $name := (include "a4.job" . | fromJson).name -}}
{{- $found := ternary (lookup "jobset.x-k8s.io/v1alpha2" "JobSet" .Release.Namespace $name) dict .Release.IsUpgrade | default dict -}}
{{- if and $found (not (dig "spec" "suspend" false $found)) -}}
  {{- $changed := list -}}
  {{- $job := dig "spec" "replicatedJobs" list $found | first -}}
  {{- $old := dig "template" "spec" "template" "metadata" "annotations" dict $job | default dict -}}
  {{- $new := include "a4.checksums" . | fromJson -}}
  {{- range $key, $what := dict "checksum/script" "the script" "checksum/config" "workload_config" -}}
    {{- if ne (get $old $key) (get $new $key) }}{{ $changed = append $changed $what }}{{ end -}}
  {{- end -}}
  {{- if not (dig "status" "terminalState" "" $found) -}}
    {{- with include "a4.changedSecrets" . }}{{ $changed = append $changed . }}{{ end -}}
    {{- $queue := dig "metadata" "labels" "kueue.x-k8s.io/queue-name" "" $found -}}
    {{- $wanted := include "a4.text" .Values.queue -}}
    {{- /* Kueue itself may give a queue to a JobSet that names none. */}}
    {{- if and $wanted (ne $queue $wanted) -}}
      {{- $changed = append $changed (printf "queue (%s, now %s)" $wanted (default "none" $queue)) -}}
    {{- end -}}
  {{- end -}}
  {{- if $changed -}}
    {{- fail (printf "\na4-agent: JobSet %s in namespace %s has started, and an upgrade cannot change %s; nothing was changed. Run `helm uninstall %s -n %s`, wait until its pods are gone, and install it anew" $name .Release.Namespace (join " and " $changed) .Release.Name .Release.Namespace) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* Names of the variables that its Secret has with other values. A Secret that is gone may be made again. */}}
{{- define "a4.changedSecrets" -}}
{{- $secret := printf "%s-env" (include "a4.job" . | fromJson).name -}}
{{- $found := lookup "v1" "Secret" .Release.Namespace $secret | default dict -}}
{{- $old := $found.data | default dict -}}
{{- $new := include "a4.secretData" . | fromJson -}}
{{- $changed := list -}}
{{- range concat (keys $old) (keys $new) | uniq | sortAlpha -}}
  {{- if ne (get $old .) (get $new .) }}{{ $changed = append $changed . }}{{ end -}}
{{- end -}}
{{- if and $found $changed }}{{ join ", " $changed }} in Secret {{ $secret }}{{ end -}}
{{- end -}}
