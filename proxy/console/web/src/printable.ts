// Characters that must not be shown unescaped: invisible control characters, and those that change the order of text. Names of a target's
// objects, and text sent by clients, may contain them. The Go package printable has the same list.
import { options } from "preact";

const unsafe = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

// printable returns a text with each unsafe character as \uXXXX, except for line breaks and tabs.
export const printable = (text: string) => text.replace(unsafe, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

const shown = ["title", "aria-label", "aria-valuetext", "aria-description", "placeholder", "alt", "label"];

// escapeText makes Preact escape all text that it shows. Input values, addresses and ids stay unchanged.
export function escapeText() {
  const before = options.vnode;
  options.vnode = (vnode) => {
    const props: unknown = vnode.props; // for a text node: the text
    if (typeof props === "string") vnode.props = printable(props) as never;
    else if (typeof vnode.type === "string") {
      const given = props as Record<string, unknown>;
      for (const name of shown) if (typeof given[name] === "string") given[name] = printable(given[name]);
    }
    before?.(vnode);
  };
}
