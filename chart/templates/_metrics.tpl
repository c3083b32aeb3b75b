{{- /* Where pods serve metrics and who scrapes them: {port, podMonitoring, podMonitor, interval, problems}; no port: nobody does. */}}
{{- define "a4.metrics" -}}
{{- $problems := list -}}
{{- $metrics := .Values.metrics | default dict -}}
{{- $network := include "a4.network" . | fromJson -}}
{{- $port := include "a4.text" $metrics.port | default "0" | atoi -}}
{{- $scraped := dict -}}
{{- range list "podMonitoring" "podMonitor" -}}
  {{- $wanted := eq (include "a4.true" (get $metrics .)) "true" -}}
  {{- $_ := set $scraped . $wanted -}}
  {{- if and $wanted (not $port) -}}
    {{- $problems = append $problems (printf "metrics.%s needs metrics.port: set it too, such as 9440" .) -}}
  {{- end -}}
{{- end -}}
{{- range $of, $taken := dict "network.sshPort" $network.sshPort "sshd in helm test" $network.testPort "network.masterPort" $network.masterPort -}}
  {{- if eq $port (int $taken) -}}
    {{- $problems = append $problems (printf "metrics.port=%d is taken: it is the port of %s; choose another, such as 9440" $port $of) -}}
  {{- end -}}
{{- end -}}
{{- $interval := include "a4.text" $metrics.interval | default "30s" -}}
{{- merge $scraped (dict "port" (ternary (toString $port) "" (gt $port 0)) "interval" $interval "problems" $problems) | toJson -}}
{{- end -}}
