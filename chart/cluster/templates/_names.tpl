{{- define "cluster.labels" -}}
app.kubernetes.io/name: a4-agent-cluster
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end -}}

{{- /* GKE's label of the nodes, cloud.google.com/gke-accelerator. */}}
{{- define "cluster.accelerator" -}}
{{ get (dict "a4" "nvidia-b200" "a3" "nvidia-h100-80gb") .Values.machine }}
{{- end -}}

{{- /* Name of the topology, the flavor and the ClusterQueue: releases for A4 and A3 can be in one cluster. */}}
{{- define "cluster.queue" -}}
{{ get (dict "a4" "a4" "a3" "a3-high") .Values.machine }}
{{- end -}}

{{- /* QUOTA PART WHOLE: the part of a quota such as 7000Gi. Kueue evicts no job for one that must borrow anything, so the
CPUs and memory that belong to the GPUs of a team are its own, too. */}}
{{- define "cluster.share" -}}
{{- $quota := index . 0 | toString -}}
{{- $part := index . 1 | float64 -}}
{{- $whole := index . 2 | float64 -}}
{{- if eq $part $whole -}}
{{ $quota | quote }}
{{- else -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" $quota -}}
{{ printf "%.0f%s" (floor (divf (mulf ($number | float64) $part) $whole)) (trimPrefix $number $quota) | quote }}
{{- end -}}
{{- end -}}

{{- /* What the pods of all DaemonSets have in common: they run on every node of the kind, whatever its taints. */}}
{{- define "cluster.daemonPod" -}}
priorityClassName: system-node-critical
hostNetwork: true
hostPID: true
tolerations: [{operator: Exists}]
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: cloud.google.com/gke-accelerator, operator: In, values: [{{ include "cluster.accelerator" . }}]}
{{- end -}}
