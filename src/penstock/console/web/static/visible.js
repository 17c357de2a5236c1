// Escapes for characters that a page would act upon and nobody sees: the same as penstock/base/escapes.py.
const unseen = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

export const visible = (text) => String(text).replace(unseen, (found) => {
  const code = found.charCodeAt(0);
  return found === "\r" ? "\\r" : code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
});
