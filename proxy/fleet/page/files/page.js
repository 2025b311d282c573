// Refreshes the table while the window is visible.
"use strict";

const table = document.getElementById("table"), state = document.getElementById("state");
const pause = 1000 * Number(document.body.dataset.seconds);

function show(text) {
  if (state.textContent !== text) state.textContent = text;
  document.body.classList.toggle("stale", text !== "");
}

async function refresh() {
  let response;
  try {
    response = await fetch("table");
  } catch {
    show("Not refreshed: the command spdk-proxy fleet has ended, or cannot be reached.");
    return;
  }
  if (!response.ok) {
    show("Not refreshed: open the address that spdk-proxy fleet printed.");
    return;
  }
  const focused = document.activeElement?.getAttribute("href");
  table.innerHTML = await response.text(); // the command has escaped it
  if (focused) [...table.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus({ preventScroll: true });
  const attention = Number(table.querySelector(".summary").dataset.attention);
  document.title = (attention > 0 ? `(${attention}) ` : "") + "Storage servers";
  show("");
}

async function run() {
  for (;;) {
    if (document.hidden) await new Promise((resume) => document.addEventListener("visibilitychange", resume, { once: true }));
    else {
      await refresh();
      await new Promise((resume) => setTimeout(resume, pause));
    }
  }
}
void run();
