// A component that links to the Grafana dashboard in the proxy's configuration.
import { Subject, useGrafana } from "../model/grafana";

export function GrafanaLink({ subject }: { subject?: Subject }) {
  const url = useGrafana(subject);
  return url && <p class="elsewhere"><a href={url} target="_blank" rel="noopener noreferrer">Open in Grafana</a></p>;
}
