// A component that offers the names of objects that the user can see, for a field.
import { useEffect, useState } from "preact/hooks";
import { byName } from "../format";
import { can } from "../model/session";
import { firstLook, freshInventory, inventory } from "../model/storage";
import { useCell } from "../state";

const most = 20;

// sources contains functions that return the names of all objects of a kind.
const sources: Record<string, (all: NonNullable<typeof inventory.value>) => string[]> = {
  bdev: (all) => [...all.disks.map((d) => d.name), ...all.volumes.map((v) => v.alias)],
  lvstore: (all) => all.stores.map((s) => s.name),
  "lvstore-uuid": (all) => all.stores.map((s) => s.uuid),
  nqn: (all) => (all.subsystems ?? []).map((s) => s.nqn),
  iqn: (all) => (all.nodes ?? []).map((n) => n.name),
  "host-nqn": (all) => [...new Set((all.subsystems ?? []).flatMap((s) => s.hosts.map((h) => h.nqn)))],
};

export const suggests = (resource: string | undefined) => resource !== undefined && resource in sources && (can("bdev_get_bdevs") || can("nvmf_get_subsystems"));

// Suggestions lists the names that a field offers. The target is queried when the field receives the focus.
export function Suggestions({ id, resource, text }: { id: string; resource: string; text: string }) {
  const whole = useCell(inventory), early = useCell(firstLook), all = whole ?? early;
  const [names, set] = useState<string[]>([]);
  useEffect(() => { void freshInventory(120000); }, []);
  useEffect(() => set(all ? sources[resource](all).sort(byName()) : []), [all, resource]);
  const wanted = text.toLowerCase(), shown: string[] = [];
  for (const name of names) {
    if (shown.length === most) break;
    if (name.toLowerCase().includes(wanted) && name !== text) shown.push(name);
  }
  return <datalist id={id}>{shown.map((name) => <option key={name} value={name} />)}</datalist>;
}
