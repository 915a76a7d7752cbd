/** Types of the `.lua` files, which the build imports as text. */
declare module '*.lua' {
  const text: string;
  export default text;
}
