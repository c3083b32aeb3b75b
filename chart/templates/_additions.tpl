{{- /* The user's containers, as init containers, and what of theirs and of labels collides with the chart's: {initContainers,
     problems}. */}}
{{- define "a4.additions" -}}
{{- $problems := (include "a4.labelProblems" . | fromJson).problems -}}
{{- $network := include "a4.network" . | fromJson -}}
{{- $volumes := (include "a4.storage" . | fromJson).names -}}
{{- $ports := dict (toString $network.sshPort) "network.sshPort" (toString $network.testPort) "the sshd of helm test" (toString $network.masterPort) "network.masterPort" -}}
{{- with (include "a4.metrics" . | fromJson).port }}{{ $_ := set $ports . "metrics.port" }}{{ end -}}
{{- $names := dict -}}
{{- range list "workload" "a4-agent" "nccl-plugin-installer" "tcpx-daemon" "gke-gcsfuse-sidecar" "gke-gcsfuse-metadata-prefetch" "gke-parallelstore-sidecar" -}}
  {{- $_ := set $names . "one of the chart's or of GKE's" -}}
{{- end -}}
{{- $containers := list -}}
{{- range $list := list "initContainers" "sidecars" -}}
  {{- range (include "a4.items" (get $.Values $list | default list) | fromJson).items -}}
    {{- $key := printf "%s[%d]" $list (int .at) -}}
    {{- $container := (include "a4.whole" .item | fromJson).is -}}
    {{- if not (and $container.name $container.image) -}}
      {{- $problems = append $problems (printf "%s needs both name and image" $key) -}}
    {{- else if hasKey $names $container.name -}}
      {{- $problems = append $problems (printf "%s is named %s, as %s: give it another name" $key $container.name (get $names $container.name)) -}}
    {{- end -}}
    {{- $_ := set $names ($container.name | default "") $key -}}
    {{- range $container.volumeMounts -}}
      {{- if not (has .name $volumes) -}}
        {{- $problems = append $problems (printf "%s mounts %s, and there is no such volume: add it to volumes.extra" $key .name) -}}
      {{- end -}}
    {{- end -}}
    {{- range $container.ports -}}
      {{- with get $ports (include "a4.text" .containerPort) -}}
        {{- $problems = append $problems (printf "%s has the port of %s: choose another" $key .) -}}
      {{- end -}}
    {{- end -}}
    {{- if eq $list "sidecars" -}}
      {{- if ne ($container.restartPolicy | default "Always") "Always" -}}
        {{- $problems = append $problems (printf "%s has the restartPolicy %s: leave it out, for one that is not Always would keep the workload from its start; what ends before it belongs into initContainers" $key $container.restartPolicy) -}}
      {{- end -}}
      {{- $_ := set $container "restartPolicy" "Always" -}}
    {{- end -}}
    {{- $containers = append $containers $container -}}
  {{- end -}}
{{- end -}}
{{- dict "initContainers" $containers "problems" $problems | toJson -}}
{{- end -}}

{{- /* Labels and annotations that are not the user's: {problems}. */}}
{{- define "a4.labelProblems" -}}
{{- $problems := list -}}
{{- $queue := dict "kueue.x-k8s.io/queue-name" "use queue" -}}
{{- $taken := dict "jobLabels" $queue "podLabels" (merge (dict "kueue.x-k8s.io/priority-class" "use jobLabels, for Kueue reads it from the JobSet") $queue) "jobAnnotations" (dict "provreq.kueue.x-k8s.io/maxRunDurationSeconds" "use dwsSettings.maxRunDurationSeconds") -}}
{{- range $key, $hints := $taken -}}
  {{- $own := dict -}}
  {{- if ne $key "jobAnnotations" }}{{ $own = include (ternary "a4.labels" "a4.podLabels" (eq $key "jobLabels")) $ | fromYaml }}{{ end -}}
  {{- range $name, $value := get $.Values $key | default dict -}}
    {{- $hint := get $hints $name -}}
    {{- if hasKey $own $name -}}
      {{- $hint = "leave it out, for the chart sets it" -}}
    {{- else if and (eq $key "podLabels") (regexMatch "^((jobset\\.sigs\\.k8s|batch\\.kubernetes)\\.io/.*|job-name|controller-uid)$" $name) -}}
      {{- $hint = "leave it out, for the controllers of JobSet and Job set it" -}}
    {{- end -}}
    {{- if and $hint (not (kindIs "invalid" $value)) -}}
      {{- $problems = append $problems (printf "%s has %s: %s" $key $name $hint) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- dict "problems" $problems | toJson -}}
{{- end -}}

{{- /* Objects of the user's: {texts, problems}. */}}
{{- define "a4.extraObjects" -}}
{{- $problems := list -}}
{{- $texts := list -}}
{{- $name := (include "a4.job" . | fromJson).name -}}
{{- $own := list (printf "JobSet %s" $name) (printf "Service %s" $name) (printf "Service %s-helm-test" $name) (printf "Job %s-helm-test-0" $name) (printf "ResourceClaimTemplate %s-rdma" $name) (printf "PodMonitoring %s" $name) (printf "PodMonitor %s" $name) -}}
{{- range list "job-secret" "env" }}{{ $own = append $own (printf "Secret %s-%s" $name .) }}{{ end -}}
{{- range list "scripts" "config" }}{{ $own = append $own (printf "ConfigMap %s-%s" $name .) }}{{ end -}}
{{- range list "nfs" "lustre" }}{{ $own = append $own (printf "PersistentVolumeClaim %s-%s" $name .) }}{{ end -}}
{{- range (include "a4.items" (.Values.extraObjects | default list) | fromJson).items -}}
  {{- $key := printf "extraObjects[%d]" (int .at) -}}
  {{- $text := tpl (kindIs "string" .item | ternary .item (toYaml .item)) $ | trim -}}
  {{- range regexSplit "(?m)^---.*$" $text -1 -}}
    {{- if trim . -}}
      {{- $object := fromYaml . -}}
      {{- $is := printf "%v %v" $object.kind ($object.metadata | default dict).name -}}
      {{- if not (and $object.apiVersion $object.kind ($object.metadata | default dict).name) -}}
        {{- $problems = append $problems (printf "%s is not an object of Kubernetes: write one with apiVersion, kind and metadata.name" $key) -}}
      {{- else if has $is $own -}}
        {{- $problems = append $problems (printf "%s is %s, which the chart or JobSet makes itself: give it another name" $key $is) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if $text }}{{ $texts = append $texts $text }}{{ end -}}
{{- end -}}
{{- dict "texts" $texts "problems" $problems | toJson -}}
{{- end -}}
