// Asks again and again: only when the last answer came, and not while nobody looks.

export function keepAsking(refresh, everyMs) {
  const ask = async () => {
    await refresh();
    setTimeout(() => (document.hidden ? document.addEventListener("visibilitychange", ask, { once: true }) : ask()), everyMs);
  };
  return ask();
}
