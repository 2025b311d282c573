// Components that show a tenant's quota and usage, and the limits on the user's calls.
import { Fragment } from "preact";
import * as format from "../format";
import { Limits, method as limitsMethod, useLimits } from "../model/limits";
import { Amounts, Tenant, method, useTenant } from "../model/tenant";
import { allowed } from "../model/session";
import { useCell } from "../state";
import { CapacityBar, Empty, ErrorNote } from "../ui/parts";

const bounds: [keyof Amounts, string][] = [["bytes", "Space"], ["volumes", "Volumes and snapshots"], ["subsystems", "Subsystems"], ["hosts", "Hosts"], ["listeners", "Listeners"], ["keys", "Keys"]];

// Quota shows the limits of the tenant's quota, and those on the user's calls, as bars.
export function Quota({ tenant }: { tenant: string }) {
  const { data, error, refresh } = useTenant(), may = useCell(allowed);
  return (
    <section class="card quota">
      <h2>Quota of tenant {tenant}</h2>
      {error && !data ? <ErrorNote error={error} retry={refresh} /> :
        may && !may.has(method) ? <Empty title="Your roles do not permit reading the quota">The method is {method}.</Empty> :
          !data ? <p class="faint">Loading…</p> :
            <ul>{bounds.map(([name, label]) => data.used[name] !== undefined && <Bound key={name} label={label} used={data.used[name]} most={data.quota[name]} write={name === "bytes" ? format.bytes : format.count} />)}</ul>}
      <CallBounds />
    </section>
  );
}

// CallBounds shows the user's own limits on calls.
function CallBounds() {
  const { data } = useLimits(60000);
  if (!data) return null;
  return (
    <>
      <h3>Your calls</h3>
      <ul>
        <Bound label="Running at once" used={data.calls_running} most={data.calls_running_limit} write={format.count} />
        {data.calls_per_second_limit !== undefined && <Bound label="Per second" used={data.calls_per_second!} most={data.calls_per_second_limit} write={format.count} />}
      </ul>
    </>
  );
}

const limitFacts: [string, (l: Limits) => string][] = [
  ["Calls at once", (l) => `${format.count(l.calls_running)} of ${format.count(l.calls_running_limit)} running, ${format.count(l.calls_waiting)} waiting`],
  ["Calls per second", (l) => l.calls_per_second_limit === undefined ? "no limit" : `${format.count(l.calls_per_second!)} of ${format.count(l.calls_per_second_limit)} in the last second`],
];

// LimitFacts shows, in a list of facts, the user's limits on calls.
export function LimitFacts() {
  const { data } = useLimits(10000), may = useCell(allowed);
  if (may && !may.has(limitsMethod)) return <><dt>Limits</dt><dd>your roles do not permit reading them ({limitsMethod})</dd></>;
  if (!data) return null;
  return <>{limitFacts.map(([label, of]) => <Fragment key={label}><dt>{label}</dt><dd class="figures">{of(data)}</dd></Fragment>)}</>;
}

function Bound({ label, used, most, write }: { label: string; used: number; most?: number; write: (n: number) => string }) {
  return (
    <li>
      <div class="line"><span>{label}</span><span class="grow" /><span class="figures"><b>{write(used)}</b> {most === undefined ? "used, without a limit" : `of ${write(most)} used`}</span></div>
      {most !== undefined && <CapacityBar label={`Quota: ${label}`} used={used} total={most} />}
    </li>
  );
}

const names: [string, (t: Tenant) => string[]][] = [
  ["Lvstores", (t) => t.lvstores], ["Other bdevs", (t) => t.bdevs],
  ["NQNs", (t) => [...t.nqn_prefixes.map((p) => p + "…"), ...(t.volume_nqn_prefix ? [t.volume_nqn_prefix + "UUID of a volume"] : [])]],
  ["iSCSI targets", (t) => t.iqn_prefixes.map((p) => p + "…")], ["Keys", (t) => t.key_prefixes.map((p) => p + "…")],
  ["Addresses", (t) => t.addresses], ["Hosts", (t) => t.hosts], ["Also permitted", (t) => t.allow],
];

// TenantNames shows, in a list of facts, which names the tenant may use.
export function TenantNames() {
  const { data } = useTenant();
  if (!data) return null;
  return <>{names.filter(([, of]) => of(data).length > 0).map(([label, of]) => <Fragment key={label}><dt>{label}</dt><dd class="mono">{of(data).join(", ")}</dd></Fragment>)}</>;
}
