// A search of messages goes on by itself, part by part, until a page is full, the end is reached, or the reader cancels.

const FULL = 50; // messages
let cancelled = false;

export function update() {}

export async function begin({ times, setFrozen }) {
  const progress = document.getElementById("progress");
  if (!progress) return;
  setFrozen(true); // what is appended here is not in the server's picture of this page
  progress.hidden = false;
  document.getElementById("cancel").addEventListener("click", () => { cancelled = true; });
  const searched = document.getElementById("searched");
  const said = document.getElementById("counts");
  let link = document.getElementById("go-on");
  const count = () => document.querySelectorAll("#messages tbody tr").length;
  const show = () => {
    const { done, total } = searched.dataset;
    progress.querySelector("progress").value = Number(done) / Math.max(Number(total), 1);
  };
  show();
  while (!cancelled && link && count() < FULL) {
    let part;
    try {
      const answer = await fetch(link.href);
      if (!answer.ok) break;
      part = new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch { break; }
    const counted = part.getElementById("searched");
    if (!counted) break;
    const found = [...(part.getElementById("messages")?.tBodies[0]?.rows ?? [])].map((row) => document.importNode(row, true));
    const table = document.getElementById("messages")?.tBodies[0];
    if (found.length && table) table.append(...found);
    else if (found.length) document.getElementById("rows").replaceChildren(document.importNode(part.getElementById("rows").firstElementChild, true));
    Object.assign(searched.dataset, { done: counted.dataset.done, total: counted.dataset.total });
    said.textContent = `${count()} shown; ${Number(counted.dataset.done).toLocaleString()} of ${Number(counted.dataset.total).toLocaleString()} offsets searched`;
    times(document.getElementById("rows"));
    show();
    const next = part.getElementById("go-on");
    if (next) link.href = next.href; else { link.remove(); link = null; }
  }
  progress.hidden = true;
  if (cancelled) searched.textContent += " Cancelled.";
}
