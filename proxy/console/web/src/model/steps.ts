// This module makes calls that belong together, one after another, and undoes them if one fails.
import { CallError, call } from "../api";

// An Undo is a call that reverses a step. check throws an error if what the step created must be kept.
export interface Undo { method: string; params: object; check?: () => Promise<void> }

export interface Step {
  method: string;
  params: object;
  shown?: object; // the parameters without secrets, if they contain one
  undo?: Undo; // undefined if there is nothing to undo, or another step's undo covers it
  stays?: boolean; // the step remains in effect if a later one fails
}

// An Outcome describes what is in effect after a plan's steps were made.
export interface Outcome {
  failed?: { step: Step; error: Error };
  undone: Undo[];
  left: { undo: Undo; error: Error }[]; // the steps that could not be undone
  stays: Step[];
  unsure: boolean; // the failed call may have been executed
}

export const textOf = (s: { method: string; params: object; shown?: object }) => `${s.method} ${JSON.stringify(s.shown ?? s.params)}`;

const notSaved = -32050, outcomeUnknown = -32054;

// mayBeDone reports whether a failed call may nevertheless have changed the target. A response without a code does not come from the proxy.
export function mayBeDone(e: Error): boolean {
  if (!(e instanceof CallError)) return true;
  if (e.code === 0) return e.status === 0 || e.status === 200 || e.status === 500 || e.status === 502 || e.status === 504;
  return e.code === outcomeUnknown || e.code === notSaved;
}

// gone reports whether an error means that the object no longer exists.
export const gone = (e: Error) => e instanceof CallError && [-19, -2, -22, -32600, -32602, -32700].includes(e.code);

// unknowable reports whether a call failed because the user is not permitted to make it, or because the target lacks the method.
export const unknowable = (e: Error) => refused(e) || (e instanceof CallError && e.code === -32601);

export const refused = (e: Error) => e instanceof CallError && (e.status === 403 || e.code === -32003 || e.code === -13);

// run makes the calls of steps. If a call fails, run undoes the calls before it in reverse order, and the failed call if it may have been
// executed. It never throws an error.
export async function run(steps: Step[], made: (number: number) => void): Promise<Outcome> {
  const outcome: Outcome = { undone: [], left: [], stays: [], unsure: false };
  for (const [i, step] of steps.entries()) {
    try {
      await call(step.method, step.params);
      made(i + 1);
    } catch (e) {
      const error = e as Error;
      outcome.failed = { step, error };
      outcome.unsure = mayBeDone(error);
      outcome.stays = steps.slice(0, i).filter((s) => s.stays);
      await undo(steps.slice(0, outcome.unsure ? i + 1 : i), outcome);
      break;
    }
  }
  return outcome;
}

async function undo(steps: Step[], outcome: Outcome) {
  for (const { undo } of steps.reverse()) {
    if (!undo) continue;
    try {
      await undo.check?.();
      await call(undo.method, undo.params);
      outcome.undone.push(undo);
    } catch (e) {
      if (!gone(e as Error)) outcome.left.push({ undo, error: e as Error });
    }
  }
}
