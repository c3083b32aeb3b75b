{{- /* Where pods may run and who admits them: {annotations, problems}. */}}
{{- define "a4.scheduling" -}}
{{- $problems := list -}}
{{- $annotations := dict -}}
{{- $queue := include "a4.text" .Values.queue -}}
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
{{- if and $queue (gt (include "a4.size" . | fromJson).nodes 1.0) (eq (get $request "kueue.x-k8s.io/podset-required-topology" | default "") "cloud.google.com/gce-topology-host") -}}
  {{- $problems = append $problems "tasSettings asks for one host for all pods, and each pod takes a whole one: use level block or sub-block, or mode preferred" -}}
{{- end -}}
{{- $seconds := (.Values.dwsSettings | default dict).maxRunDurationSeconds -}}
{{- if $queue -}}
  {{- range $key, $value := $request -}}
    {{- $_ := set $annotations $key (include "a4.text" $value) -}}
  {{- end -}}
  {{- with include "a4.text" $seconds -}}
    {{- $_ := set $annotations "provreq.kueue.x-k8s.io/maxRunDurationSeconds" . -}}
  {{- end -}}
{{- else if $seconds -}}
  {{- $problems = append $problems "dwsSettings.maxRunDurationSeconds without a queue: DWS flex-start comes through Kueue; set queue to a LocalQueue that provisions" -}}
{{- end -}}
{{- if and (include "a4.nodes" .Values.targetNodes) (include "a4.nodes" .Values.avoidNodes) -}}
  {{- $problems = append $problems "targetNodes and avoidNodes are both set: name either the nodes to use or those to keep off" -}}
{{- end -}}
{{- dict "annotations" $annotations "problems" $problems | toJson -}}
{{- end -}}

{{- /* nodeSelector, affinity, tolerations and the like, of every pod of the release. */}}
{{- define "a4.placement" -}}
tolerations:
  - {key: nvidia.com/gpu, operator: Exists}
  - {key: cloud.google.com/impending-node-termination, operator: Exists}
  {{- with (include "a4.whole" (.Values.tolerations | default list) | fromJson).is }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with include "a4.texts" (list .Values.nodeSelector) }}
nodeSelector: {{- . | nindent 2 }}
{{- end }}
{{- with include "a4.text" .Values.serviceAccountName }}
serviceAccountName: {{ . | quote }}
{{- end }}
{{- with include "a4.text" .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with (include "a4.whole" (.Values.imagePullSecrets | default list) | fromJson).is }}
imagePullSecrets:
  {{- range . }}
  - name: {{ include "a4.text" . | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* A list of nodes as lines of YAML; nothing for none. */}}
{{- define "a4.nodes" -}}
{{- range (include "a4.whole" (. | default list) | fromJson).is }}
- {{ include "a4.text" . | quote }}
{{- end -}}
{{- end -}}

{{- /* The nodes that the user has named, as terms of a nodeAffinity. */}}
{{- define "a4.nodeTerms" -}}
{{- $target := include "a4.nodes" .Values.targetNodes -}}
{{- $avoid := include "a4.nodes" .Values.avoidNodes -}}
{{- with coalesce $target $avoid -}}
requiredDuringSchedulingIgnoredDuringExecution:
  nodeSelectorTerms:
    - matchExpressions:
        - key: kubernetes.io/hostname
          operator: {{ if $target }}In{{ else }}NotIn{{ end }}
          values: {{- . | nindent 12 }}
{{- end -}}
{{- end -}}
