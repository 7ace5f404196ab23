{{- define "pi-worker.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "pi-worker.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pi-worker.labels" -}}
{{ include "pi-worker.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "pi-worker.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "pi-worker.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "pi-worker.name" .) -}}
{{- end -}}

{{- /* The whole pi-worker.yaml: what the chart decides, over what was given. */ -}}
{{- define "pi-worker.config" -}}
{{- $nats := dict "url" .Values.nats.url "prefix" .Values.nats.prefix "replicas" (int .Values.nats.replicas) -}}
{{- if .Values.nats.credentials.existingSecret -}}
{{- $_ := set $nats .Values.nats.credentials.kind "/etc/pi-worker/nats/credentials" -}}
{{- end -}}
{{- if .Values.nats.tls.existingSecret -}}
{{- $tls := dict "ca" "/etc/pi-worker/tls/ca.crt" -}}
{{- if .Values.nats.tls.clientCertificate -}}
{{- $_ := set $tls "cert" "/etc/pi-worker/tls/tls.crt" -}}
{{- $_ := set $tls "key" "/etc/pi-worker/tls/tls.key" -}}
{{- end -}}
{{- $_ := set $nats "tls" $tls -}}
{{- end -}}
{{- $worker := dict "sessions" (int .Values.sessions) "grace" (printf "%ds" (int .Values.graceSeconds)) -}}
{{- if .Values.workspaceClaim -}}
{{- $_ := set $worker "workspace" (dict "mode" "dir" "dir" "/workspaces") -}}
{{- end -}}
{{- $own := dict "nats" $nats "worker" $worker "http" (dict "listen" (printf ":%d" (int .Values.metrics.port))) -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.config) $own) -}}
{{- end -}}

{{- /* As subjects.Names.BellStream names it. */ -}}
{{- define "pi-worker.bellStream" -}}
{{- printf "%s_BELL" (.Values.nats.prefix | replace "." "_" | upper) -}}
{{- end -}}
