// Before anything is painted: the chosen theme, where one was chosen.
(() => {
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch { /* storage is switched off */ }
})();
