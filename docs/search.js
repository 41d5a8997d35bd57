// To the search a hyphen before a word means "without it". Here it begins an option: --log-dir asks for pages that have both of its words.
const post = Worker.prototype.postMessage;
const words = (option, before, name) => before + name.split("-").map((word) => `+${word}*`).join(" ");
Worker.prototype.postMessage = function (message, ...rest) {
  const asks = message?.type === 2;
  return post.call(this, asks ? { ...message, data: message.data.replace(/(^|\s)--?(\w[\w-]*\w)(?=\s|$)/g, words) } : message, ...rest);
};
