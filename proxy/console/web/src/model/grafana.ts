// Links to a Grafana dashboard, if the proxy's configuration has one.
import { useCell } from "../state";
import { session } from "./session";

export interface Subject { volume: string; uuid: string; store: string }

// fill replaces the placeholders in the template's query. Without a subject, parameters that contain a placeholder are omitted.
export function fill(template: string, subject?: Subject): string {
  const url = new URL(template);
  const query = new URLSearchParams();
  for (const [key, value] of url.searchParams) {
    if (subject) query.append(key, value.replace(/\{(volume|uuid|store)\}/g, (_all, name: keyof Subject) => subject[name]));
    else if (!value.includes("{")) query.append(key, value);
  }
  url.search = query.toString();
  return url.href;
}

// useGrafana returns the dashboard's URL, or null if none is configured.
export function useGrafana(subject?: Subject): string | null {
  const template = useCell(session)?.grafana;
  return template ? fill(template, subject) : null;
}
