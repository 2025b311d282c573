// A link to the Grafana dashboard that the proxy's configuration names.
import { Subject, useGrafana } from "../model/grafana";

export function GrafanaLink({ subject }: { subject?: Subject }) {
  const url = useGrafana(subject);
  return url && <p class="elsewhere"><a href={url} target="_blank" rel="noopener noreferrer">Open in Grafana</a></p>;
}
