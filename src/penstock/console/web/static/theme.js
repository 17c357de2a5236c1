// Before the first paint: the reader's choice of light or dark, if there is one.
"use strict";
try {
  const chosen = localStorage.getItem("penstock-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* storage is switched off */ }
