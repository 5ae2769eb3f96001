"use strict";
// What goes wrong is said on the page, where a reader can pass it on.
window.addEventListener("error", (event) => {
  const trouble = document.getElementById("trouble");
  trouble.textContent += ` A part of this page failed: ${event.message}`;
  trouble.hidden = false;
});

// The address holds what is looked at, so that a link can show it to others: #token=14&layer=2.
const address = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
const remember = (values) => {
  for (const [name, value] of Object.entries(values)) {
    if (value === null) address.delete(name);
    else address.set(name, value);
  }
  // Some browsers refuse this for files; the page works without it.
  try { history.replaceState(null, "", "#" + address); } catch { /* nothing is lost */ }
};

{
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("longspan-theme"); } catch { return null; } };
  let chosen = address.get("theme") || stored();
  const apply = () => {
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
    const dark = chosen ? chosen === "dark" : system.matches;
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${dark ? "light" : "dark"} colours`);
    document.dispatchEvent(new Event("colours"));
  };
  button.addEventListener("click", () => {
    const dark = chosen ? chosen === "dark" : system.matches;
    chosen = dark ? "light" : "dark";
    try { localStorage.setItem("longspan-theme", chosen); } catch { /* asked again next time */ }
    apply();
  });
  system.addEventListener("change", apply);
  button.hidden = false;
  apply();
}
