// Images of a message: {name, url}.
import {PICTURE_KINDS} from "./conversation.mjs";
import {bytes, h} from "./dom.mjs";

const IMAGE_BYTES = 20 << 20;

export const isPicture = (file) => file.type.startsWith("image/") && file.type !== "image/svg+xml";

// Whether the URL of an image, in base64, has about this many bytes.
export const pictureBytes = ({url}) => Math.floor((url.length - url.indexOf(",") - 1) * 3 / 4);

function dataUrl(blob, name) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${name} cannot be read.`));
    reader.readAsDataURL(blob);
  });
}

// What the browser can show and models cannot read.
async function asPng(file) {
  const picture = await createImageBitmap(file).catch(() => { throw new Error(`${file.name} is not an image that this browser can read.`); });
  const canvas = h("canvas", {width: picture.width, height: picture.height});
  canvas.getContext("2d").drawImage(picture, 0, 0);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

// Throws with the reason why there is none.
export async function readPicture(file) {
  if (file.size > IMAGE_BYTES) throw new Error(`${file.name} is larger than ${bytes(IMAGE_BYTES)}.`);
  const blob = PICTURE_KINDS.includes(file.type) ? file : await asPng(file);
  return {name: file.name, url: await dataUrl(blob, file.name)};
}

export const thumbnail = ({name, url}) => h("img", {src: url, alt: name, class: "thumbnail"});

// Small, and whole once it is chosen.
export function pictureView({name, url}) {
  const button = h("button", {type: "button", class: "picture", "aria-label": `Image ${name}`, "aria-expanded": "false", onclick: () => {
    const whole = button.classList.toggle("whole");
    button.setAttribute("aria-expanded", String(whole));
  }}, h("img", {src: url, alt: ""}));
  return button;
}
