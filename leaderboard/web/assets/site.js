// Two conveniences; every page works without them: the theme is remembered, and a live page keeps itself current.
"use strict";

const RETRY_MS = 5000, YEAR_S = 31536000;

for (const choice of document.getElementsByName("theme")) {
  choice.addEventListener("change", () => {
    document.cookie = `theme=${choice.value}; path=/; max-age=${YEAR_S}; samesite=lax`;
  });
}

// Nothing may change under somebody who fills in a form.
function isFilledIn(main) {
  const fields = [...main.querySelectorAll("input, select")];
  const changed = field => field.options
    ? [...field.options].some(option => option.selected !== option.defaultSelected && field.selectedIndex > 0)
    : field.value !== field.defaultValue;
  return fields.some(field => field === document.activeElement || changed(field));
}

// What a reader has opened, focused and scrolled to, as a function that puts a new main part into the same state.
function placeOfReader(main) {
  const focused = document.activeElement && document.activeElement.id;
  const open = new Map([...main.querySelectorAll("details[id]")].map(details => [details.id, details.open]));
  const places = [...main.querySelectorAll(".scroll, .source")].map(box => [box.scrollLeft, box.scrollTop]);
  return () => {
    for (const details of main.querySelectorAll("details[id]")) details.open = open.get(details.id) ?? details.open;
    main.querySelectorAll(".scroll, .source").forEach((box, index) => box.scrollTo(...(places[index] ?? [0, 0])));
    if (focused && document.activeElement.id !== focused) document.getElementById(focused)?.focus({preventScroll: true});
  };
}

// The page's main part as the server renders it now takes the place of the one shown.
async function refresh(main) {
  if (isFilledIn(main)) return;
  const answer = await fetch(location.href, {headers: {Accept: "text/html"}});
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
  if (!answer.ok || !fresh || fresh.innerHTML === main.innerHTML || isFilledIn(main)) return;
  const restore = placeOfReader(main);
  main.replaceChildren(...fresh.childNodes);
  restore();
  if (!("live" in fresh.dataset)) location.reload();
}

function keepCurrent(main) {
  let busy = false, again = false;
  const run = async () => {
    again = true;
    if (busy) return;
    busy = true;
    while (again) { again = false; await refresh(main).catch(() => {}); }
    busy = false;
  };
  const events = new EventSource(main.dataset.live);
  events.addEventListener("queue", run);
  events.onopen = run;
  setInterval(() => { if (events.readyState !== EventSource.OPEN && !document.hidden) run(); }, RETRY_MS);
}

const main = document.getElementById("main");
if (main && main.dataset.live) keepCurrent(main);
