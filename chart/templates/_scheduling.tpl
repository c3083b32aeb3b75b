{{- /* Where pods may run and who admits them: {annotations, jobAnnotations, problems, notes}, those of pods and of the JobSet. */}}
{{- define "a4.scheduling" -}}
{{- $problems := list -}}
{{- $notes := list -}}
{{- $annotations := dict -}}
{{- $jobAnnotations := dict -}}
{{- $queue := include "a4.text" .Values.queue -}}
{{- if and (not $queue) (not (kindIs "invalid" .Values.queue)) -}}
  {{- $notes = append $notes "queue is empty: the job starts without Kueue. If it came from a variable of your shell, that one is not set" -}}
{{- end -}}
{{- if not (regexMatch "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$" $queue) -}}
  {{- $problems = append $problems (printf "queue=%s is not the name of a LocalQueue: write one that `kubectl get localqueue` shows, or leave it out to start without Kueue" $queue) -}}
{{- end -}}
{{- $tas := .Values.tasSettings | default dict -}}
{{- $mode := $tas.mode | default "preferred" -}}
{{- $kinds := list "kueue.x-k8s.io/podset-required-topology" "kueue.x-k8s.io/podset-preferred-topology" "kueue.x-k8s.io/podset-unconstrained-topology" -}}
{{- $request := (include "a4.whole" ($tas.topologyRequest | default dict) | fromJson).is -}}
{{- if $request -}}
  {{- $known := 0 -}}
  {{- range $key, $value := $request -}}
    {{- if has $key $kinds }}{{ $known = add1 $known }}{{ end -}}
  {{- end -}}
  {{- if ne (int $known) 1 -}}
    {{- $problems = append $problems (printf "tasSettings.topologyRequest has %d of these annotations, and Kueue takes exactly one: %s; or use tasSettings.mode and level" (int $known) (join ", " $kinds)) -}}
  {{- end -}}
{{- else if eq $mode "unconstrained" -}}
  {{- $request = dict "kueue.x-k8s.io/podset-unconstrained-topology" "true" -}}
{{- else if ne $mode "none" -}}
  {{- $levels := dict "block" "cloud.google.com/gce-topology-block" "sub-block" "cloud.google.com/gce-topology-subblock" "host" "cloud.google.com/gce-topology-host" -}}
  {{- $request = dict (printf "kueue.x-k8s.io/podset-%s-topology" $mode) (get $levels ($tas.level | default "block")) -}}
{{- end -}}
{{- $seconds := (.Values.dwsSettings | default dict).maxRunDurationSeconds -}}
{{- if $queue -}}
  {{- $theirs := false -}}
  {{- range $key, $value := .Values.podAnnotations | default dict }}{{ if has $key $kinds }}{{ $theirs = true }}{{ end }}{{ end -}}
  {{- range $key, $value := $request -}}
    {{- if not $theirs }}{{ $_ := set $annotations $key (include "a4.text" $value) }}{{ end -}}
  {{- end -}}
  {{- with include "a4.text" $seconds -}}
    {{- /* Kueue makes its ProvisioningRequest of the JobSet's own annotations. */}}
    {{- $_ := set $jobAnnotations "provreq.kueue.x-k8s.io/maxRunDurationSeconds" . -}}
  {{- end -}}
{{- else if $seconds -}}
  {{- $problems = append $problems "dwsSettings.maxRunDurationSeconds without a queue: DWS flex-start comes through Kueue; set queue to a LocalQueue that provisions" -}}
{{- end -}}
{{- $job := include "a4.job" . | fromJson -}}
{{- $required := get (merge (dict) (.Values.podAnnotations | default dict) $annotations) "kueue.x-k8s.io/podset-required-topology" -}}
{{- if and (gt (int $job.nodes) 1) (eq (toString $required) "cloud.google.com/gce-topology-host") -}}
  {{- $problems = append $problems "all pods are asked to be on one host, and each pod takes a whole one: use level block or sub-block, or mode preferred" -}}
{{- end -}}
{{- $target := (include "a4.words" .Values.targetNodes | fromJson).names -}}
{{- if and $target (include "a4.words" .Values.avoidNodes | fromJson).names -}}
  {{- $problems = append $problems "targetNodes and avoidNodes are both set: name either the nodes to use or those to keep off" -}}
{{- else if and $target $job.whole (lt (len $target) (int $job.nodes)) -}}
  {{- $problems = append $problems (printf "targetNodes names %d of the %d nodes that workload.gpus=%d needs: each pod takes a whole one" (len $target) (int $job.nodes) (int $job.gpus)) -}}
{{- end -}}
{{- $gpus := include "a4.gpus" . -}}
{{- $terms := dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" list (include "a4.affinity" . | fromJson) -}}
{{- range $label, $named := include "a4.accelerator" . | fromJson -}}
  {{- if contains $label (toJson $terms) -}}
    {{- $problems = append $problems (printf "affinity names %s beside accelerator, which stands for %s, and nodes would have to fit both: set accelerator to nothing, and affinity alone decides" $label $named) -}}
  {{- end -}}
{{- end -}}
{{- if regexMatch "^nvidia-gb[0-9]+$" $gpus -}}
  {{- $problems = append $problems (printf "nodes with %s (A4X) are not supported: they have processors of Arm, 4 GPUs and NVLink between nodes, for which images, the gIB installer and the pods' claims are not made; use A4 or A3" $gpus) -}}
{{- end -}}
{{- dict "annotations" $annotations "jobAnnotations" $jobAnnotations "problems" $problems "notes" $notes | toJson -}}
{{- end -}}

{{- /* The label of nodes with the GPUs that the job is for. With auto that is what its fabric tells, unless the user has named
     the nodes. */}}
{{- define "a4.accelerator" -}}
{{- $network := include "a4.network" . | fromJson -}}
{{- $named := include "a4.text" .Values.accelerator -}}
{{- if eq $named "auto" -}}
  {{- $named = "" -}}
  {{- if (include "a4.words" .Values.targetNodes | fromJson).names -}}
  {{- else if $network.tcpx -}}
    {{- $named = "nvidia-h100-80gb" -}}
  {{- else if or $network.gib (hasPrefix "a4-" $network.profile) -}}
    {{- $named = "nvidia-b200" -}}
  {{- end -}}
{{- end -}}
{{- $label := dict -}}
{{- with $named }}{{ $_ := set $label "cloud.google.com/gke-accelerator" . }}{{ end -}}
{{- $label | toJson -}}
{{- end -}}

{{- /* GKE's name of those GPUs; empty: any. */}}
{{- define "a4.gpus" -}}
{{- include "a4.text" (get (merge (dict) (.Values.nodeSelector | default dict) (include "a4.accelerator" . | fromJson)) "cloud.google.com/gke-accelerator") -}}
{{- end -}}

{{- /* nodeSelector, tolerations and the like, of every pod of the release. */}}
{{- define "a4.placement" -}}
tolerations:
  - {key: nvidia.com/gpu, operator: Exists}
  - {key: cloud.google.com/impending-node-termination, operator: Exists}
  {{- with (include "a4.whole" (.Values.tolerations | default list) | fromJson).is }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with include "a4.texts" (list .Values.nodeSelector (include "a4.accelerator" . | fromJson)) }}
nodeSelector: {{- . | trim | nindent 2 }}
{{- end }}
{{- with include "a4.text" .Values.serviceAccountName }}
serviceAccountName: {{ . | quote }}
{{- end }}
{{- with include "a4.text" .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with include "a4.text" .Values.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- with include "a4.text" .Values.schedulerName }}
schedulerName: {{ . | quote }}
{{- end }}
{{- with (include "a4.whole" (.Values.podSecurityContext | default dict) | fromJson).is }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with (include "a4.words" .Values.imagePullSecrets | fromJson).names }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* The user's affinity, where the nodes that targetNodes or avoidNodes name are in every term that nodes must fit. */}}
{{- define "a4.affinity" -}}
{{- $affinity := (include "a4.whole" (.Values.affinity | default dict) | fromJson).is -}}
{{- $target := (include "a4.words" .Values.targetNodes | fromJson).names -}}
{{- with coalesce $target (include "a4.words" .Values.avoidNodes | fromJson).names -}}
  {{- $named := dict "key" "kubernetes.io/hostname" "operator" (ternary "In" "NotIn" (not (empty $target))) "values" . -}}
  {{- $terms := list -}}
  {{- range dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" list $affinity | default (list dict) -}}
    {{- $terms = append $terms (merge (dict "matchExpressions" (append (.matchExpressions | default list) $named)) .) -}}
  {{- end -}}
  {{- $must := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
  {{- $_ := set $affinity "nodeAffinity" (merge $must ($affinity.nodeAffinity | default dict)) -}}
{{- end -}}
{{- toJson $affinity -}}
{{- end -}}
