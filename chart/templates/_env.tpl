{{- /* PAI_WORKSPACE_ROOT is on what all pods share: {value, note}. The old values files preset /mnt and /mnt/lustrefs, whatever
     was mounted: where nothing is, they give way. */}}
{{- define "a4.workspace" -}}
{{- $storage := include "a4.storage" . | fromJson -}}
{{- $given := get (include "a4.variables" . | fromJson).values "PAI_WORKSPACE_ROOT" -}}
{{- $there := false -}}
{{- range $storage.mounts -}}
  {{- $path := clean .mountPath -}}
  {{- if or (eq $given $path) (hasPrefix (printf "%s/" $path) $given) }}{{ $there = true }}{{ end -}}
{{- end -}}
{{- if not $given -}}
  {{- dict "value" $storage.shared "note" "" | toJson -}}
{{- else if or $there (not (has (clean $given) (list "/mnt" "/mnt/lustrefs"))) -}}
  {{- dict "value" $given "note" "" | toJson -}}
{{- else -}}
  {{- $now := printf "it is %s" $storage.shared -}}
  {{- if not $storage.shared }}{{ $now = "it is left out" }}{{ end -}}
  {{- dict "value" $storage.shared "note" (printf "PAI_WORKSPACE_ROOT was %s, where nothing is mounted: %s" $given $now) | toJson -}}
{{- end -}}
{{- end -}}

{{- /* Variables that pods of a cluster know each other by. Takes {prefix, domain, nodes, gpus, gpusPerNode}. */}}
{{- define "a4.clusterEnv" -}}
{{- $first := printf "%s0-0.%s" .prefix .domain -}}
- {name: JOB_ORCHESTRATOR, value: gke}
- name: JOB_COMPLETION_INDEX
  valueFrom: {fieldRef: {fieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
# For messages: whoever reads them looks for the pod with kubectl, and cordons the node.
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
# Another one in each attempt: it names the epoch where JobSet, before 0.9, does not tell its own uid.
- name: JOB_UUID
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/controller-uid']"}}
- {name: HOSTNAME_PREFIX, value: {{ .prefix | quote }}}
- {name: DOMAIN_NAME, value: {{ .domain | quote }}}
- {name: RANK_0_FQDN, value: {{ $first | quote }}}
- {name: MASTER_ADDR, value: {{ $first | quote }}}
- {name: WORLD_SIZE, value: {{ int .gpus | quote }}}
- {name: NNODES, value: {{ int .nodes | quote }}}
- {name: GPUS_PER_NODE, value: {{ int .gpusPerNode | quote }}}
{{- end -}}

{{- /* The names for A4_USER_ENV. Takes {entries, workspace}. */}}
{{- define "a4.userEnv" -}}
{{- $names := list -}}
{{- $workspace := .workspace -}}
{{- range .entries -}}
  {{- $gaveWay := and (eq .name "PAI_WORKSPACE_ROOT") (ne $workspace (.value | default "")) -}}
  {{- $interface := and .preset (hasSuffix "_SOCKET_IFNAME" .name) -}}
  {{- if and .own (not (or $gaveWay $interface (hasPrefix "A4_" .name) (has .name (list "SLEEP_INFINITY" "SSH_PUBLIC_KEY")))) -}}
    {{- $names = append $names .name -}}
  {{- end -}}
{{- end -}}
{{- join " " $names -}}
{{- end -}}

{{- /* The names for A4_SECRET_ENV: variables whose values come from Secrets. Takes the entries. */}}
{{- define "a4.secretEnv" -}}
{{- $names := list -}}
{{- range . -}}
  {{- if or (dig "valueFrom" "secretKeyRef" "" .) (include "a4.keptSecret" .) }}{{ $names = append $names .name }}{{ end -}}
{{- end -}}
{{- join " " $names -}}
{{- end -}}

{{- /* All variables of the workload's container. */}}
{{- define "a4.env" -}}
{{- $job := include "a4.job" . | fromJson -}}
{{- $variables := include "a4.variables" . | fromJson -}}
{{- $network := include "a4.network" . | fromJson -}}
{{- $workspace := (include "a4.workspace" . | fromJson).value -}}
{{- $name := $job.name -}}
- {name: JOB_ID, value: {{ $name | quote }}}
- {name: JOB_IDENTIFIER, value: {{ $name | quote }}}
{{ include "a4.clusterEnv" (dict "prefix" (printf "%s-workload-" $name) "domain" (include "a4.domain" .) "nodes" $job.nodes "gpus" $job.gpus "gpusPerNode" $job.gpusPerNode) }}
- {name: MASTER_PORT, value: {{ int $network.masterPort | quote }}}
- name: A4_JOBSET_UID
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['jobset.sigs.k8s.io/jobset-uid']"}}
- name: A4_RESTART_ATTEMPT
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}}
- name: A4_JOB_RESTART_ATTEMPT
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['jobset.sigs.k8s.io/job-restart-attempt']"}}
- {name: A4_IMAGE, value: {{ .Values.workload.image | quote }}}
- {name: A4_GRACE_SECONDS, value: {{ include "a4.grace" . | quote }}}
- {name: A4_SSH_PORT, value: {{ int $network.sshPort | quote }}}
{{- with (include "a4.metrics" . | fromJson).port }}
- {name: A4_METRICS_PORT, value: {{ . | quote }}}
{{- end }}
{{- with (include "a4.task" . | fromJson).run }}
- {name: A4_WORKLOAD, value: {{ . | quote }}}
{{- end }}
{{- with .Values.workload.runName }}
- {name: A4_RUN_NAME, value: {{ . | quote }}}
{{- end }}
{{- with .Values.workload.gate }}
- {name: A4_GATE, value: {{ . | quote }}}
{{- end }}
{{- if and (ne (include "a4.lives" .) "0") (not (hasKey $variables.values "A4_LIVES")) }}
- {name: A4_LIVES, value: {{ include "a4.lives" . | quote }}}
{{- end }}
{{- if ne $network.profile "auto" }}
- {name: A4_PROFILE, value: {{ $network.profile | quote }}}
{{- end }}
{{- with include "a4.gpus" . }}
- {name: A4_ACCELERATOR, value: {{ . | quote }}}
{{- end }}
- {name: SLEEP_INFINITY, value: {{ (include "a4.task" . | fromJson).sleep | quote }}}
{{- with $workspace }}
- {name: PAI_WORKSPACE_ROOT, value: {{ . | quote }}}
{{- end }}
{{- with include "a4.userEnv" (dict "entries" $variables.entries "workspace" $workspace) }}
- {name: A4_USER_ENV, value: {{ . | quote }}}
{{- end }}
{{- with include "a4.secretEnv" $variables.entries }}
- {name: A4_SECRET_ENV, value: {{ . | quote }}}
{{- end }}
{{- if $network.gib }}
{{- range $key, $value := dict "NCCL_PLUGIN_PATH" "/usr/local/gib/lib64" "NCCL_INIT_SCRIPT" "/usr/local/gib/scripts/set_nccl_env.sh" }}
{{- if not (hasKey $variables.values $key) }}
- {name: {{ $key }}, value: {{ $value }}}
{{- end }}
{{- end }}
{{- end }}
{{- if not (hasKey $variables.values "A4_LOG_FORMAT") }}
- {name: A4_LOG_FORMAT, value: json}
{{- end }}
{{- range $variables.entries }}
{{- if has .name (list "SLEEP_INFINITY" "PAI_WORKSPACE_ROOT") }}
{{- else if .valueFrom }}
- name: {{ .name | quote }}
  valueFrom: {{- toYaml .valueFrom | nindent 4 }}
{{- else if include "a4.keptSecret" . }}
- name: {{ .name | quote }}
  valueFrom: {secretKeyRef: {name: "{{ $name }}-env", key: {{ .name | quote }}}}
{{- else }}
- {name: {{ .name | quote }}, value: {{ .value | quote }}}
{{- end }}
{{- end }}
{{- end -}}
