// Two conveniences; every page works without them: the theme is remembered, and a live page keeps itself current.
"use strict";

const RETRY_MS = 5000, YEAR_S = 31536000;

for (const choice of document.getElementsByName("theme")) {
  choice.addEventListener("change", () => {
    document.cookie = `theme=${choice.value}; path=/; max-age=${YEAR_S}; samesite=lax`;
  });
}

// The page's main part as the server renders it now takes the place of the one shown, focus and open details kept.
async function refresh(main) {
  const answer = await fetch(location.href, {headers: {Accept: "text/html"}});
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
  if (!answer.ok || !fresh || fresh.innerHTML === main.innerHTML) return;
  const focused = document.activeElement && document.activeElement.id;
  const open = new Set([...main.querySelectorAll("details[open]")].map(details => details.id));
  for (const details of fresh.querySelectorAll("details[id]")) details.open = open.has(details.id);
  main.replaceChildren(...fresh.childNodes);
  if (focused && document.activeElement.id !== focused) document.getElementById(focused)?.focus({preventScroll: true});
  if (!("live" in fresh.dataset)) location.reload();
}

function keepCurrent(main) {
  let busy = false, again = false;
  const run = async () => {
    if (busy) { again = true; return; }
    busy = true;
    do { again = false; await refresh(main).catch(() => {}); } while (again);
    busy = false;
  };
  const events = new EventSource(main.dataset.live);
  events.addEventListener("queue", run);
  events.onmessage = run;
  events.onopen = run;
  setInterval(() => { if (events.readyState !== EventSource.OPEN && !document.hidden) run(); }, RETRY_MS);
}

const main = document.getElementById("main");
if (main && main.dataset.live) keepCurrent(main);
