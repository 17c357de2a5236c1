// Make one tree of elements equal to another while keeping the nodes that stay: focus, selection, scrolling and open
// details survive an update. Elements with data-keep belong to a script and are left alone, but for their data.
export function morph(old, wanted) {
  attributes(old, wanted);
  if (old.hasAttribute("data-keep") && wanted.hasAttribute("data-keep")) return;
  let at = old.firstChild;
  for (let next = wanted.firstChild; next !== null;) {
    const after = next.nextSibling;
    const found = at && same(at, next) ? at : matching(at, next);
    if (found === null) {
      old.insertBefore(next, at);
    } else {
      if (found !== at) old.insertBefore(found, at);
      if (found.nodeType === Node.ELEMENT_NODE) morph(found, next);
      else if (found.nodeValue !== next.nodeValue) found.nodeValue = next.nodeValue;
      at = found.nextSibling;
    }
    next = after;
  }
  while (at !== null) {
    const after = at.nextSibling;
    at.remove();
    at = after;
  }
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.id || node.dataset.key || "" : "";
}

function same(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
}

function matching(from, wanted) {
  if (!keyOf(wanted)) return null;
  for (let node = from; node; node = node.nextSibling) if (same(node, wanted)) return node;
  return null;
}

const OWN = new Set(["open", "value", "checked", "tabindex", "aria-sort"]); // what the reader has done

function attributes(old, wanted) {
  for (const { name, value } of [...wanted.attributes])
    if (!OWN.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes])
    if (!OWN.has(name) && !name.startsWith("data-own") && !wanted.hasAttribute(name)) old.removeAttribute(name);
}
